"""Seconds that compute, collectives and copies to and from the host take side by side, each slowing the others.

Mist's form (EuroSys '25): while a set S of two or more streams runs, stream i of S takes f[S][i] times longer than
alone; when one ends, those left go on as the smaller set. There are 28 factors: 2 in each of the 6 pairs, 3 in each
of the 4 triples, 4 in the full set.

Adding work never shortens the time. Let x be the streams' seconds alone. For one order of finishing the time is linear,
sum of c[i] * x[i]: the last to end has c = 1, and the first to end of a set S, stream a, has

    c[a] = f[S][a] * (1 - sum over i in S without a of c[i] / f[S][i])

where the others' c are those of S without a. The linear pieces meet (at a tie both drop the same streams) and every
order occurs for some x, so the time rises with every stream if and only if no c is negative, that is

    sum over i in S without a of c[i] / f[S][i] <= 1    for every S, a in S and order of the others.          (1)

In words: beside a, the time the others still need does not fall faster than the clock runs. Pairs satisfy it always,
and so does any set that slows each stream at least as much as every smaller set does; but (1) asks for less, so that a
fit loses least. Mist's own fits break it. As factors are at least 1, no stream ends before its own time; and where
factors are so large that overlapping does not pay, the streams run one after the other: the time is never above their
sum, and the lesser of two rising functions rises.
"""

import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from itertools import combinations
from typing import Annotated, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import AfterValidator, Field, model_validator

from cost_models.specs.base import FloatByName, FrozenDict, Name, Sources, Spec
from cost_models.specs.data import data_folder
from cost_models.specs.errors import UnknownNameError, did_you_mean

__all__ = [
    "SETS",
    "STREAMS",
    "Slowdowns",
    "cell",
    "factor_table",
    "fastest_fall",
    "load_slowdowns",
    "overlapped",
    "raised",
    "set_name",
    "until_all_end",
    "weights_beside",
]

Array = NDArray[np.float64]
Streams = tuple[str, ...]
Factors = Mapping[str, Mapping[str, float]]

STREAMS: Streams = ("compute", "collective", "host_to_device", "device_to_host")
SETS: tuple[Streams, ...] = tuple(streams for size in (2, 3, 4) for streams in combinations(STREAMS, size))

_ROUNDING = 1e-9  # condition (1) is checked on factors that were rounded to decimals
_CHUNK_ROWS = 1 << 13  # a quarter of a megabyte for each work array, so that they stay in cache


def _frozen_factors(factors: Factors) -> Factors:
    return FrozenDict({name: FrozenDict(of_streams) for name, of_streams in factors.items()})


Factor = Annotated[float, Field(strict=True, ge=1, le=1e6, allow_inf_nan=False)]
FactorBySet = Annotated[Mapping[str, Mapping[str, Factor]], AfterValidator(_frozen_factors)]


class Slowdowns(Spec):
    """How many times longer each stream takes beside others, on one kind of host; sets and streams by name.

    A set that is not given slows each stream as much as the worst of its subsets that are; a pair that is not given
    does not interfere.
    """

    label: ClassVar[str] = "interference"

    gpu: Name = Field(description="GPU model these factors were measured on")
    host: Name = Field("not stated", description="what else shapes them: the box, its links")
    factors: FactorBySet = Field(
        default_factory=dict,
        description="for each set of streams, such as compute+collective: the factor on each, >= 1",
        validate_default=True,
    )
    errors: FloatByName = Field(
        default_factory=dict,
        description="mean |predicted / measured - 1| of the fit, by how it was checked",
        validate_default=True,
    )
    sources: Sources = Field(
        default_factory=dict, description="the source of every figure, by field", validate_default=True
    )

    @model_validator(mode="after")
    def _names_are_known_and_work_never_pays(self) -> Self:
        known = {set_name(streams): streams for streams in SETS}
        for name, of_streams in self.factors.items():
            if name not in known:
                message = f"factors must be keyed by sets of streams, one of {', '.join(known)}, got {name!r}"
                raise ValueError(message)
            if set(of_streams) != set(known[name]):
                message = f"factors.{name} must give {', '.join(known[name])}, got {', '.join(of_streams) or 'nothing'}"
                raise ValueError(message)
        complete = _completed(self.factors)
        for streams in SETS:
            fall = _fall(complete, streams)
            if fall > 1 + _ROUNDING:
                message = (
                    f"factors.{set_name(streams)} must be at least {fall:.6g} times as large, got "
                    f"{complete[set_name(streams)]}: with these, adding work would shorten the time"
                )
                raise ValueError(message)
        return self


def cell(streams: Streams) -> tuple[list[int], int]:
    """Return where the factors of a set stand in a `factor_table`: (rows, column)."""
    rows = [STREAMS.index(stream) for stream in streams]
    return rows, sum(1 << row for row in rows)


@lru_cache(maxsize=64)
def factor_table(slowdowns: Slowdowns) -> Array:
    """Return the factors, shape (streams, 16): column k is the set of streams with a bit in k; 1 where idle."""
    complete = _completed(slowdowns.factors)
    table = np.ones((len(STREAMS), 1 << len(STREAMS)))
    for streams in SETS:
        table[cell(streams)] = [complete[set_name(streams)][stream] for stream in streams]
    table.flags.writeable = False
    return table


def set_name(streams: Streams) -> str:
    """Return the name of a set of streams in data files: "compute+collective"."""
    return "+".join(streams)


def load_slowdowns(gpu: str) -> Slowdowns:
    """Return the measured slowdowns of a GPU of data/interference. Raises UnknownNameError, SpecError."""
    folder = data_folder() / "interference"
    known = sorted(path.stem for path in folder.glob("*.toml"))
    if gpu not in known:
        message = f"no interference measured on {gpu!r}, only on {', '.join(known)}{did_you_mean(gpu, known)}"
        raise UnknownNameError(message)
    return Slowdowns.model_validate(tomllib.loads((folder / f"{gpu}.toml").read_text(encoding="utf-8")))


def overlapped(
    compute: ArrayLike,
    collective: ArrayLike,
    host_to_device: ArrayLike,
    device_to_host: ArrayLike,
    slowdowns: Slowdowns,
) -> Array:
    """Return the seconds until all four streams have ended, elementwise; arguments are seconds alone, >= 0.

    Arguments broadcast. The result rises with each of them, is at least the longest and at most their sum; nan stays.

    >>> pair = Slowdowns(gpu="any", factors={"compute+collective": {"compute": 1.5, "collective": 1.25}})
    >>> float(overlapped(2.0, 4.0, 0.0, 0.0, pair))  # compute ends after 3 s, when 3 / 1.25 of the collective is done
    4.6
    """
    streams = [
        np.asarray(seconds, dtype=np.float64) for seconds in (compute, collective, host_to_device, device_to_host)
    ]
    shape = np.broadcast_shapes(*(stream.shape for stream in streams))
    alone = np.stack([np.broadcast_to(stream, shape).ravel() for stream in streams])
    together = np.empty(alone.shape[1])
    for start in range(0, together.size, _CHUNK_ROWS):  # a chunk, not a row
        chunk = slice(start, start + _CHUNK_ROWS)
        together[chunk] = until_all_end(alone[:, chunk], factor_table(slowdowns))
    return together.reshape(shape)


def until_all_end(alone: Array, table: Array) -> Array:
    """Return the seconds of each column of `alone` (streams, rows) with the factors of a `factor_table`."""
    used = np.flatnonzero(alone.any(axis=1))
    bits = (1 << used).astype(np.uint8)[:, None]
    left, factors, elapsed = alone[used], table[used], np.zeros(alone.shape[1])
    for _ in used:
        running = left > 0
        column = (running * bits).sum(axis=0, dtype=np.uint8)
        slow = factors.take(column, axis=1, mode="clip")  # clip: within bounds by construction, and faster
        ends = np.where(running, left * slow, np.inf)
        first_end = ends.min(axis=0)
        first_end[np.isinf(first_end)] = 0.0
        elapsed += first_end
        left = np.where(running, (ends - first_end) / slow, 0.0)
    result: Array = np.maximum(np.minimum(elapsed, alone.sum(axis=0)), alone.max(axis=0))
    return result


def raised(factors: Factors) -> dict[str, dict[str, float]]:
    """Return factors of all sets that satisfy condition (1): each set times the least common factor that it needs.

    Sets are raised from pairs up, so that a smaller set is never touched for the sake of a larger one. Factors that
    satisfy (1) already come back as they are.
    """
    complete = _completed(factors)
    for streams in SETS:
        name = set_name(streams)
        least = max(1.0, _fall(complete, streams))
        complete[name] = {stream: least * factor for stream, factor in complete[name].items()}
    return complete


def _completed(factors: Factors) -> dict[str, dict[str, float]]:
    """Return the factors of all sets, in order of size; what is missing is the worst of the subsets."""
    complete: dict[str, dict[str, float]] = {}
    for streams in SETS:
        smaller = [complete[set_name(rest)] for _, rest in _first_and_others(streams) if len(rest) > 1]
        worst = {stream: max([1.0, *(of[stream] for of in smaller if stream in of)]) for stream in streams}
        given = factors.get(set_name(streams), worst)
        complete[set_name(streams)] = {stream: given[stream] for stream in streams}
    return complete


def weights_beside(factors: Factors, streams: Streams) -> Array:
    """Return the c of condition (1), shape (conditions, streams): zero for the stream a, one row for each order.

    `factors` must hold the subsets of two or more streams; condition (1) is that no row times 1/f is above 1.
    """
    rows = [weights for _, others in _first_and_others(streams) for weights in _weights(factors, others)]
    return np.array([[weights.get(stream, 0.0) for stream in streams] for weights in rows])


def fastest_fall(weights: Array, factors: Array) -> float:
    """Return the largest left side of condition (1) for a set, from its `weights_beside` and factors.

    Factors this many times as large satisfy the condition.
    """
    return float((weights / factors).sum(axis=1).max())


def _fall(factors: Factors, streams: Streams) -> float:
    """Return the largest left side of condition (1) for a set, given the factors of it and its subsets by name."""
    of_streams = factors[set_name(streams)]
    return fastest_fall(weights_beside(factors, streams), np.array([of_streams[stream] for stream in streams]))


def _weights(factors: Factors, streams: Streams) -> Iterator[dict[str, float]]:
    """Yield c of the docstring above, for each order in which the streams can finish."""
    if len(streams) == 1:
        yield {streams[0]: 1.0}
        return
    slow = factors[set_name(streams)]
    for first, others in _first_and_others(streams):
        for weights in _weights(factors, others):
            fall = sum(weight / slow[stream] for stream, weight in weights.items())
            yield {**weights, first: slow[first] * (1 - fall)}


def _first_and_others(streams: Streams) -> Iterator[tuple[str, Streams]]:
    """Yield each stream with the ones beside it."""
    for first in streams:
        yield first, tuple(stream for stream in streams if stream != first)

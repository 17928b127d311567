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
from functools import lru_cache

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models.specs.data import data_folder
from cost_models.specs.errors import UnknownNameError, did_you_mean
from cost_models.specs.slowdowns import (
    SETS,
    STREAMS,
    Factors,
    Slowdowns,
    Streams,
    completed,
    largest_fall,
    orders,
    set_name,
)

__all__ = [
    "SETS",
    "STREAMS",
    "Slowdowns",
    "Streams",
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

_CHUNK_ROWS = 1 << 13  # a quarter of a megabyte for each work array, so that they stay in cache


def cell(streams: Streams) -> tuple[list[int], int]:
    """Return where the factors of a set stand in a `factor_table`: (rows, column)."""
    rows = [STREAMS.index(stream) for stream in streams]
    return rows, sum(1 << row for row in rows)


@lru_cache(maxsize=64)
def factor_table(slowdowns: Slowdowns) -> Array:
    """Return the factors, shape (streams, 16): column k is the set of streams with a bit in k; 1 where idle."""
    complete = completed(slowdowns.factors)
    table = np.ones((len(STREAMS), 1 << len(STREAMS)))
    for streams in SETS:
        table[cell(streams)] = [complete[set_name(streams)][stream] for stream in streams]
    table.flags.writeable = False
    return table


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
    complete = completed(factors)
    for streams in SETS:
        name = set_name(streams)
        least = max(1.0, largest_fall(complete, streams))
        complete[name] = {stream: least * factor for stream, factor in complete[name].items()}
    return complete


def weights_beside(factors: Factors, streams: Streams) -> Array:
    """Return the c of condition (1), shape (conditions, streams): zero for the stream a, one row for each order.

    `factors` must hold the subsets of two or more streams; condition (1) is that no row times 1/f is above 1.
    """
    return np.array([[row.get(stream, 0.0) for stream in streams] for row in orders(factors, streams)])


def fastest_fall(weights: Array, factors: Array) -> float:
    """Return the largest left side of condition (1) for a set, from its `weights_beside` and factors.

    Factors this many times as large satisfy the condition.
    """
    return float((weights / factors).sum(axis=1).max())

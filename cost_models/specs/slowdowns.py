"""What streams of a device do to each other while they run side by side: factors, and when they are possible at all."""

from collections.abc import Iterator, Mapping
from itertools import combinations
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from cost_models.specs.base import FloatByName, FrozenDict, Name, Sources, Spec

__all__ = [
    "SETS",
    "STREAMS",
    "Factors",
    "Slowdowns",
    "Streams",
    "completed",
    "first_and_others",
    "largest_fall",
    "orders",
    "set_name",
]

Streams = tuple[str, ...]
Factors = Mapping[str, Mapping[str, float]]

STREAMS: Streams = ("compute", "collective", "host_to_device", "device_to_host")
SETS: tuple[Streams, ...] = tuple(streams for size in (2, 3, 4) for streams in combinations(STREAMS, size))

_ROUNDING = 1e-9  # condition (1) of cost_models/interference.py is checked on factors that were rounded to decimals


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
        complete = completed(self.factors)
        for streams in SETS:
            least = largest_fall(complete, streams)
            if least > 1 + _ROUNDING:
                message = (
                    f"factors.{set_name(streams)} must be at least {least:.6g} times as large, got "
                    f"{complete[set_name(streams)]}: with these, adding work would shorten the time"
                )
                raise ValueError(message)
        return self


def set_name(streams: Streams) -> str:
    """Return the name of a set of streams in data files: "compute+collective"."""
    return "+".join(streams)


def completed(factors: Factors) -> dict[str, dict[str, float]]:
    """Return the factors of all sets, in order of size; what is missing is the worst of the subsets."""
    complete: dict[str, dict[str, float]] = {}
    for streams in SETS:
        smaller = [complete[set_name(rest)] for _, rest in first_and_others(streams) if len(rest) > 1]
        worst = {stream: max([1.0, *(of[stream] for of in smaller if stream in of)]) for stream in streams}
        given = factors.get(set_name(streams), worst)
        complete[set_name(streams)] = {stream: given[stream] for stream in streams}
    return complete


def orders(factors: Factors, streams: Streams) -> list[dict[str, float]]:
    """Return the c of condition (1) by stream, one row for each stream a and each order of the others.

    `factors` must hold the subsets of two or more streams; condition (1) is that no row times 1/f is above 1.
    """
    return [weights for _, others in first_and_others(streams) for weights in _weights(factors, others)]


def largest_fall(factors: Factors, streams: Streams) -> float:
    """Return the largest left side of condition (1) for a set, given the factors of it and its subsets by name."""
    of_streams = factors[set_name(streams)]
    return max(sum(c / of_streams[stream] for stream, c in row.items()) for row in orders(factors, streams))


def _weights(factors: Factors, streams: Streams) -> Iterator[dict[str, float]]:
    """Yield c of condition (1), for each order in which the streams can finish."""
    if len(streams) == 1:
        yield {streams[0]: 1.0}
        return
    slow = factors[set_name(streams)]
    for first, others in first_and_others(streams):
        for weights in _weights(factors, others):
            fall = sum(weight / slow[stream] for stream, weight in weights.items())
            yield {**weights, first: slow[first] * (1 - fall)}


def first_and_others(streams: Streams) -> Iterator[tuple[str, Streams]]:
    """Yield each stream with the ones beside it."""
    for first in streams:
        yield first, tuple(stream for stream in streams if stream != first)

"""Interference: how much longer each stream takes while others are at work, in every combination.

A stream is compute, collectives, copies to a device or from it. The others are kept at work in the background while one
is timed; over its seconds alone that is its factor.
"""

from collections.abc import Sequence

from cost_models.interference import raised
from cost_models.specs.slowdowns import SETS, STREAMS, set_name
from profiler.points import Measured, Point

__all__ = ["ALONE", "factors_of", "points", "streams_of"]

ALONE = "alone"


def points(streams: Sequence[str]) -> list[Point]:
    """Each stream alone, and beside every set of the others that a device has."""
    alone = [Point(f"{ALONE}:{stream}", (1,)) for stream in streams]
    together = [each for each in SETS if set(each) <= set(streams)]
    return [*alone, *(Point(f"{set_name(each)}:{stream}", (1,)) for each in together for stream in each)]


def streams_of(point: Point) -> tuple[str, tuple[str, ...]]:
    """The stream that is timed, and those beside it."""
    together, timed = point.operator.split(":")
    if together == ALONE:
        return timed, ()
    return timed, tuple(stream for stream in STREAMS if stream in together.split("+") and stream != timed)


def factors_of(measured: Sequence[Measured]) -> dict[str, dict[str, float]]:
    """Factors by set of streams, such that more work never takes less time; nothing where no pair was measured."""
    seconds = {one.point.operator: one.seconds for one in measured if ":" in one.point.operator}
    found: dict[str, dict[str, float]] = {}
    for streams in SETS:
        name = set_name(streams)
        if all(f"{name}:{stream}" in seconds and f"{ALONE}:{stream}" in seconds for stream in streams):
            found[name] = {
                stream: max(1.0, seconds[f"{name}:{stream}"] / seconds[f"{ALONE}:{stream}"]) for stream in streams
            }
    return {name: of for name, of in raised(found).items() if name in found} if found else {}

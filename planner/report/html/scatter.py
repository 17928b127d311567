"""Points of two quantities of which less is better, and those that no other point beats in both: the Pareto front."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from planner.report.axes import round_between
from solver.pareto import front

__all__ = ["Mark", "Point", "Scatter", "scatter"]

# Room around the points, as a share of what they span; and where all have one value, of that.
ROOM, ALONE = 0.12, 0.05
TICKS = 6


@dataclass(frozen=True)
class Point:
    """A point: its two quantities, a short label, what the pointer tells, and whether it is the one to look at."""

    x: float
    y: float
    label: str
    tip: str
    chosen: bool = False
    key: str = ""


@dataclass(frozen=True)
class Mark:
    """A point on paper, in percent from the left and from the top."""

    left: float
    top: float
    point: Point
    on_front: bool


@dataclass(frozen=True)
class Scatter:
    """A drawing of points, what is on a front last. `lines` are the fronts as corners in percent: steps."""

    marks: tuple[Mark, ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]
    x_ticks: tuple[tuple[float, str], ...]
    y_ticks: tuple[tuple[float, str], ...]
    x_name: str
    y_name: str


def scatter(
    points: Sequence[Point],
    x_name: str,
    y_name: str,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    fronts: Sequence[Sequence[int]] | None = None,
) -> Scatter:
    """The drawing of at least one point; texts are for the axes. `fronts` are the points of each, where known."""
    (x_low, x_high), (y_low, y_high) = _span([point.x for point in points]), _span([point.y for point in points])

    def left(x: float) -> float:
        return 100 * (x - x_low) / (x_high - x_low)

    def top(y: float) -> float:
        return 100 * (y_high - y) / (y_high - y_low)

    if fronts is None:
        fronts = [front([(point.x, point.y) for point in points]).tolist()]
    best = {index for each in fronts for index in each}
    marks = [Mark(left(point.x), top(point.y), point, index in best) for index, point in enumerate(points)]
    lines = [
        _stairs([(marks[index].left, marks[index].top) for index in sorted(each, key=lambda index: points[index].x)])
        for each in fronts
        if each
    ]
    return Scatter(
        marks=tuple(sorted(marks, key=lambda mark: (mark.on_front, mark.point.chosen))),
        lines=tuple(lines),
        x_ticks=tuple((left(x), x_text(x)) for x in round_between(x_low, x_high, TICKS)),
        y_ticks=tuple((top(y), y_text(y)) for y in round_between(y_low, y_high, TICKS)),
        x_name=x_name,
        y_name=y_name,
    )


def _stairs(corners: list[tuple[float, float]]) -> tuple[tuple[float, float], ...]:
    """Between two points of the front nothing is better than the left one: the line goes right, then down."""
    line = [corners[0]]
    for (_, before), (left, top) in pairwise(corners):
        line += [(left, before), (left, top)]
    return tuple(line)


def _span(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = ROOM * (high - low) or ALONE * abs(high) or 1.0
    return max(low - room, 0.0) if low >= 0 else low - room, high + room

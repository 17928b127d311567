"""Points of two quantities of which less is better, and those that no other point beats in both: the Pareto front."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from planner.report.axes import round_interval
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
    """A drawing of points. `line` is the front as corners, left and top in percent: it falls in steps."""

    marks: tuple[Mark, ...]
    line: tuple[tuple[float, float], ...]
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
    best: Sequence[int] | None = None,
) -> Scatter:
    """The drawing of at least one point; texts are for the axes. `best` are the points of the front, where known."""
    (x_low, x_high), (y_low, y_high) = _span([point.x for point in points]), _span([point.y for point in points])

    def left(x: float) -> float:
        return 100 * (x - x_low) / (x_high - x_low)

    def top(y: float) -> float:
        return 100 * (y_high - y) / (y_high - y_low)

    if best is None:
        best = front([(point.x, point.y) for point in points]).tolist()
    ordered = sorted(best, key=lambda index: points[index].x)
    marks = tuple(Mark(left(point.x), top(point.y), point, index in set(best)) for index, point in enumerate(points))
    return Scatter(
        marks=marks,
        line=tuple(_stairs([(marks[index].left, marks[index].top) for index in ordered])),
        x_ticks=tuple((left(x), x_text(x)) for x in _ticks(x_low, x_high)),
        y_ticks=tuple((top(y), y_text(y)) for y in _ticks(y_low, y_high)),
        x_name=x_name,
        y_name=y_name,
    )


def _stairs(corners: list[tuple[float, float]]) -> list[tuple[float, float]]:
    """Between two points of the front nothing is better than the left one: the line goes right, then down."""
    line = [(corners[0][0], 0.0), corners[0]]
    for (_, before), (left, top) in zip(corners, corners[1:], strict=False):
        line += [(left, before), (left, top)]
    return [*line, (100.0, corners[-1][1])]


def _span(values: list[float]) -> tuple[float, float]:
    low, high = min(values), max(values)
    room = ROOM * (high - low) or ALONE * abs(high) or 1.0
    return max(low - room, 0.0) if low >= 0 else low - room, high + room


def _ticks(low: float, high: float) -> list[float]:
    interval = round_interval(high - low, TICKS)
    first = -(-low // interval)
    return [(first + index) * interval for index in range(int((high - first * interval) / interval) + 1)]

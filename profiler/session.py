"""A measurement from beginning to end: a coarse grid of every operator, then points where interpolation errs most,
until the budget is spent; what is finished is kept, and is not measured again."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod

from profiler.candidates import LAYERS, PIPELINES
from profiler.choice import coarse, most_uncertain
from profiler.crew import Crew
from profiler.points import Measured, Point

__all__ = ["Progress", "Session"]

Candidates = Mapping[str, Sequence[Point]]

# Of the budget: for the coarse grid; and what is left at the end for tables and files.
COARSE_SHARE, SPARE_SHARE = 0.6, 0.03
LEAST_SLICE_S, MOST_SLICE_S = 0.03, 1.0
# Points of the coarse grid: of an operator of one size for each kind of row, of one of several sizes.
COARSE_POINTS = {1: 3, 2: 5, 3: 8, 5: 5}
# No point may take more of the budget than this, with so many repetitions at least.
MOST_OF_BUDGET, REPETITIONS = 0.08, 8
# Repetitions that a point takes at least, with those that warm up.
FEWEST_AGAIN = 9
# The same product again and again says whether the device is as fast as at its best.
REFERENCE_EVERY_S, SLOWER = 5.0, 1.15
# Below this part of its seconds an error is not worth a point.
GOOD_ENOUGH = 0.01
# What tells of the seconds of an operator's smallest point: another, and how often its seconds.
TOLD_BY = {
    LAYERS[1]: (LAYERS[0], 3.0),
    LAYERS[2]: (LAYERS[1], 1.1),
    **dict.fromkeys(PIPELINES, (LAYERS[1], 5.0)),
}


@dataclass(frozen=True)
class Progress:
    """How far a measurement is."""

    done: int
    doing: str
    spent_s: float
    budget_s: float


class Session:
    """Measures candidates with a crew within a budget."""

    def __init__(
        self,
        crew: Crew,
        candidates: Candidates,
        *,
        budget_s: float,
        finished: Sequence[Measured] = (),
        keep: Callable[[Sequence[Measured]], None] = lambda _: None,
        tell: Callable[[Progress], None] = lambda _: None,
        reference: Point | None = None,
    ) -> None:
        """`finished` are measurements of an earlier run, `keep` puts all away after each new one."""
        self._crew, self._candidates = crew, candidates
        self._budget_s, self._start_s = budget_s, time.monotonic()
        self.measured: dict[Point, Measured] = {one.point: one for one in finished}
        self._finished = frozenset(self.measured)
        self._keep, self._tell = keep, tell
        self.look_every_s = REFERENCE_EVERY_S
        self._reference, self._looked_s, self._best_s, self._slow = reference, -REFERENCE_EVERY_S, 0.0, False

    @property
    def spent_s(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._start_s

    def run(self) -> list[Measured]:
        """Everything that was measured, that of an earlier run included. Raises ProfilerError."""
        first = [point for points in self._candidates.values() for point in _coarse(points)]
        first = [point for point in _in_turns(first) if point not in self.measured]
        for number, point in enumerate(first):
            left_s = COARSE_SHARE * self._budget_s - self.spent_s
            if self._is_over():
                return list(self.measured.values())
            if self._is_affordable(point):
                self._measure(point, left_s / (len(first) - number))
        while not self._is_over():
            found = self._next()
            if found is None:
                break
            self._measure(found, (self._budget_s - self.spent_s) / 20)
        self._measure_again()
        return list(self.measured.values())

    def _measure_again(self) -> None:
        """Every point of this run once more, minutes after the first time, those that were repeated least first.

        What disturbs a machine comes and goes in minutes; repetitions right after each other all meet it, or none.
        """
        left = [one for one in self.measured.values() if one.point not in self._finished]
        left.sort(key=lambda one: one.repetitions)
        for number, first in enumerate(left):
            if self._left_s >= FEWEST_AGAIN * first.seconds:
                self._measure(first.point, self._left_s / (len(left) - number))

    def of(self, operator: str) -> list[Measured]:
        """What was measured of an operator."""
        return [one for one in self.measured.values() if one.point.operator == operator]

    @property
    def _left_s(self) -> float:
        return (1 - SPARE_SHARE) * self._budget_s - self.spent_s

    def _is_over(self) -> bool:
        return self._left_s < 0

    def _is_affordable(self, point: Point) -> bool:
        """Whether a point will hardly take more of the budget than it may, judged by the largest smaller one.

        The first of an operator is the smallest, of which no more is known than another operator tells.
        """
        teller, times = TOLD_BY.get(point.operator, (point.operator, 1.0))
        known, factor = self.of(point.operator), 1.0
        if not known:
            known, factor = [one for one in self.of(teller) if one.point.detail == point.detail], times
        if not known:
            return True
        nearest = min(known, key=lambda one: abs(_work(point) - _work(one.point)))
        expected_s = factor * nearest.seconds * max(1.0, _work(point) / _work(nearest.point))
        return REPETITIONS * expected_s <= max(MOST_SLICE_S, MOST_OF_BUDGET * self._budget_s)

    def _next(self) -> Point | None:
        """The point of all operators where the most seconds are uncertain; None where all are known well enough."""
        best, most = None, GOOD_ENOUGH
        for operator, points in self._candidates.items():
            affordable = [point for point in points if self._is_affordable(point)]
            found = most_uncertain(affordable, self.of(operator))
            if found is not None and found[1] > most:
                best, most = found
        return best

    def _measure(self, point: Point, limit_s: float) -> None:
        self._tell(Progress(len(self.measured), str(point), self.spent_s, self._budget_s))
        self._look_at_reference()
        limit_s = min(MOST_SLICE_S, max(LEAST_SLICE_S, limit_s))
        found = replace(self._crew.measure(point, limit_s), throttled=self._slow)
        before = self.measured.get(point)
        self.measured[point] = before.with_another(found) if before else found
        self._keep(list(self.measured.values()))

    def _look_at_reference(self) -> None:
        """Whether the device is slower than at its best, now and then."""
        if self._reference is None or time.monotonic() - self._looked_s < self.look_every_s:
            return
        self._looked_s = time.monotonic()
        seconds = self._crew.measure(self._reference, LEAST_SLICE_S).seconds
        self._best_s = min(seconds, self._best_s or seconds)
        self._slow = seconds > SLOWER * self._best_s


def _coarse(points: Sequence[Point]) -> list[Point]:
    """The coarse grid of one operator."""
    by_detail: dict[tuple[int, ...], list[Point]] = {}
    for point in points:
        by_detail.setdefault(point.detail if len(point.sizes) == 1 else (), []).append(point)
    chosen = [point for some in by_detail.values() for point in coarse(some, COARSE_POINTS[len(some[0].sizes)])]
    return sorted(chosen, key=_work)


def _work(point: Point) -> float:
    return float(prod(point.sizes))


def _in_turns(points: Sequence[Point]) -> list[Point]:
    """The points, the first of every operator first, so that a short budget reaches all of them."""
    seen: dict[str, int] = {}
    turns = []
    for point in points:
        seen[point.operator] = seen.get(point.operator, 0) + 1
        turns.append(seen[point.operator])
    order = sorted(range(len(points)), key=lambda index: turns[index])
    return [points[index] for index in order]

"""Rows that no assignment under a cutoff takes, told by one path at a time: what a program need not be asked about."""

from __future__ import annotations

from math import inf

import numpy as np

from solver.arrays import BoolArray, FloatArray
from solver.assignment import AssignmentProblem, Path

PRICES = 7
"""Prices of a unit that are tried for each path, beside none."""
ROUNDS = 3
"""Times that all paths are looked at, while rows leave: each that leaves makes the others' stages dearer."""
_ROUNDING = 1e-9
"""How far, relatively, a row must lie above the cutoff."""


class Elimination:
    """The rows that are left under a cutoff.

    With a price on units in place of their total (a Lagrangian) every stage takes its cheapest row of a path by itself;
    a row costs at least as much as these of all other stages and its own. Any price gives a bound, the best counts.
    """

    def __init__(self, problem: AssignmentProblem, cutoff: float) -> None:
        self._cutoff = cutoff * (1.0 + _ROUNDING)
        self._problem = problem
        self._order = np.argsort(problem.stage, kind="stable")
        self._stage = problem.stage[self._order]
        self._units = problem.units[self._order].astype(np.float64)
        self._starts = np.searchsorted(self._stage, np.arange(problem.num_stages))
        self._complete = len(np.unique(self._stage)) == problem.num_stages
        rows = len(self._stage)
        self._global = np.zeros(rows) if problem.global_value is None else problem.global_value[self._order]
        self._alive = np.ones(rows, dtype=bool)
        self._paths: list[tuple[FloatArray, float]] = []
        for path in problem.paths:
            self.add(path)

    def add(self, path: Path) -> None:
        """None; the path counts from the next look on."""
        self._paths.append((self._problem.row_weights(path)[self._order], path.constant))

    def left(self) -> BoolArray | None:
        """bool[n] the rows that assignments under the cutoff can take; None where a stage has none of these."""
        if self._cutoff < inf and self._complete:
            for _ in range(ROUNDS):
                before = int(self._alive.sum())
                if not all(self._look_at(weights, constant) for weights, constant in self._paths):
                    return None
                if int(self._alive.sum()) == before:
                    break
        left = np.empty(len(self._alive), dtype=bool)
        left[self._order] = self._alive
        return left

    def _look_at(self, weights: FloatArray, constant: float) -> bool:
        """Whether every stage has a row, after those left that the path shows to be over the cutoff."""
        per_unit = np.sort(weights[self._alive] / np.maximum(self._units[self._alive], 1.0))
        prices = np.unique(np.append(per_unit[np.linspace(0, len(per_unit) - 1, PRICES).astype(np.int64)], 0.0))
        reduced = np.where(self._alive, weights - prices[:, None] * self._units, inf)
        least = np.minimum.reduceat(reduced, self._starts, axis=1)
        every = least.sum(axis=1) + prices * self._problem.total_units + constant
        bound = (every[:, None] - least[:, self._stage] + reduced).max(axis=0)
        floor = np.minimum.reduceat(np.where(self._alive, self._global, inf), self._starts).max()
        self._alive &= bound + np.maximum(self._global, floor) < self._cutoff
        return bool(np.logical_or.reduceat(self._alive, self._starts).all())

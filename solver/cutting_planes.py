"""Assignments whose true cost only an oracle knows: paths are added to a mixed-integer program as it returns them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import inf
from time import monotonic

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import IntArray
from solver.assignment import AssignmentProblem, Path
from solver.elimination import Elimination
from solver.errors import MalformedProblemError
from solver.milp import AssignmentModel, MilpStatus

Oracle = Callable[[IntArray], tuple[float, Sequence[Path]]]
"""From a choice, int[num_stages] rows, to its true cost and paths that bound the cost of *every* assignment.

One of them should be tight at this choice (its length plus the greatest global value is the true cost); where none is,
the search may end before its gap is closed, and says so. Further ones spare programs where many choices are alike: a
path that is long at one of them leaves the others as they were."""

_TOLERANCE = 1e-7
"""Relative distance at which costs count as equal: what the back end can tell apart, and a little more."""


@dataclass(frozen=True, eq=False)
class CuttingPlanesResult:
    """Best assignment by true cost, and what is proven about all others."""

    status: MilpStatus
    """OPTIMAL: within the gap asked for; FEASIBLE, UNKNOWN: a limit came first, with, without a choice."""
    choice: IntArray
    """int[num_stages]: row taken by each stage; empty when there is none."""
    objective: float
    """True cost of the choice; infinity without one."""
    bound: float
    """No assignment truly costs less."""
    iterations: int
    """Mixed-integer programs solved."""
    paths: tuple[Path, ...]
    """Those that the oracle returned, in order: valid for every assignment, so also for a later search."""


def cutting_planes(
    problem: AssignmentProblem,
    oracle: Oracle,
    *,
    gap: float = 0.0,
    cutoff: float = inf,
    start: ArrayLike | None = None,
    iterations: int = 100,
    seconds: float = inf,
) -> CuttingPlanesResult:
    """Assignment whose true cost is within `(1 + gap)` of a proven bound, or the best one when a limit comes first.

    Each round solves the program with the paths so far, whose optimum bounds the true one, and asks the oracle about
    the solution. It ends with CUTOFF as soon as no assignment can cost less than `cutoff`, even if one was found.

    Args:
        start: int[num_stages], an assignment to ask the oracle about first.
        iterations: programs to solve at most.
        seconds: wall time at most; a search that it stops is not reproducible.

    Raises:
        MalformedProblemError: a path of the oracle is longer than the true cost that it came with, or misshapen.
        BackEndError: PuLP or HiGHS is missing or broke down.
    """
    deadline = monotonic() + seconds
    search = _Search(problem, oracle, cutoff)
    if start is not None:
        search.ask(np.asarray(start, dtype=np.int64))
    for _ in range(iterations):
        left = deadline - monotonic()
        if left <= 0:
            break
        ended = search.step(gap, left)
        if ended:
            return search.result(ended)
    return search.result("FEASIBLE" if len(search.best) else "UNKNOWN")


class _Search:
    """State of one search."""

    def __init__(self, problem: AssignmentProblem, oracle: Oracle, cutoff: float) -> None:
        self.best = np.empty(0, dtype=np.int64)
        self._problem = problem
        self._oracle = oracle
        self._cutoff = cutoff
        # Made when a program is first needed: often what single paths leave out is all.
        self._model: AssignmentModel | None = None
        self._elimination = Elimination(problem, cutoff)
        self._objective, self._bound, self._iterations = inf, -inf, 0
        self._paths: list[Path] = []
        self._asked: set[tuple[int, ...]] = set()

    def ask(self, choice: IntArray) -> None:
        """None; the oracle's answer about a choice is taken into the model and the incumbent."""
        objective, paths = self._oracle(choice)
        for path in paths:
            length = self._problem.path_length(path, choice) + self._problem.greatest_global(choice)
            if length > objective + _TOLERANCE * max(abs(objective), abs(length)):
                raise MalformedProblemError(
                    field="oracle path", found=f"length {length}", allowed=f"<= {objective}, the cost it came with"
                )
            self._paths.append(path)
            self._elimination.add(path)
            if self._model is not None:
                self._model.add_path(path)
        self._asked.add(tuple(choice.tolist()))
        if objective < self._objective:
            self.best, self._objective = choice, objective

    def step(self, gap: float, seconds: float) -> MilpStatus | None:
        """Status with which the search ends after one more program, or None."""
        left = self._elimination.left()
        if left is None:
            self._bound = max(self._bound, self._cutoff)
            return "CUTOFF"
        if self._model is None:
            paths = (*self._problem.paths, *self._paths)
            self._model = AssignmentModel(replace(self._problem, paths=paths), self._cutoff)
        self._model.keep(left)
        solved = self._model.solve(seconds=seconds)
        self._iterations += 1
        self._bound = max(self._bound, solved.bound)
        if solved.status == "INFEASIBLE":
            return "INFEASIBLE"
        if self._bound >= self._cutoff:
            return "CUTOFF"
        known = tuple(solved.choice.tolist()) in self._asked
        if len(solved.choice) and not known:
            self.ask(solved.choice)
        if self._objective <= self._bound + max(gap, _TOLERANCE) * abs(self._bound):
            return "OPTIMAL"
        # A choice that comes back shows a path that was not tight there: no further round can tell more.
        stuck = known or solved.status == "UNKNOWN"
        return ("FEASIBLE" if len(self.best) else "UNKNOWN") if stuck else None

    def result(self, status: MilpStatus) -> CuttingPlanesResult:
        """The search so far, under a status."""
        bound = min(self._bound, self._objective) if status != "CUTOFF" else self._bound
        return CuttingPlanesResult(status, self.best, self._objective, bound, self._iterations, tuple(self._paths))

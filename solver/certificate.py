"""What a search has proven: the best objective found, the bound under all that is left, and the gap between them."""

from __future__ import annotations

import heapq
from collections.abc import Iterable
from dataclasses import dataclass
from math import inf, isnan
from typing import Literal

from solver.errors import MalformedProblemError, UnknownCandidateError

CertificateStatus = Literal["OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN"]
"""OPTIMAL: the gap is within the tolerance. FEASIBLE, UNKNOWN: a limit came first, with, without a result.
INFEASIBLE: proven that there is none."""


@dataclass(frozen=True)
class Certificate:
    """Outcome of a search, objective and bound in its unit. What a machine makes of it (wall time) is no part."""

    status: CertificateStatus
    objective: float
    """Of the best candidate; infinity without one."""
    bound: float
    """No candidate can do better; infinity when INFEASIBLE."""
    gap: float
    """(objective - bound) / objective, at least 0; infinity without an objective."""
    method: str
    """How the bound was proven, for people."""
    candidates: int
    """Candidates that the bound speaks of."""
    evaluated: int
    """Candidates whose objective or infeasibility was determined."""


def relative_gap(objective: float, bound: float) -> float:
    """(objective - bound) / objective, at least 0; infinity without a finite objective, or for 0 over a bound below 0.

    >>> relative_gap(2.0, 1.5)
    0.25
    """
    if objective <= bound:
        return 0.0 if objective < inf else inf
    if objective == inf or objective == 0.0:
        return inf
    return (objective - bound) / abs(objective)


class Ledger:
    """Record of the bound and the best true objective of every candidate of a search.

    Candidates are numbered from 0 in the order in which they are added; where objectives or bounds are equal, the lower
    number goes first. A bound never falls, an objective never rises.

    >>> ledger = Ledger(tolerance=0.1)
    >>> ledger.add([1.0, 2.0])
    range(0, 2)
    >>> ledger.record(0, objective=1.05)
    >>> ledger.gap, ledger.settled
    (0.0476..., True)
    """

    def __init__(self, tolerance: float) -> None:
        if not 0.0 <= tolerance < 1.0:
            raise MalformedProblemError(field="tolerance", found=tolerance, allowed="in [0, 1)")
        self._tolerance = tolerance
        self._bounds: list[float] = []
        self._objectives: list[float] = []
        self._known: list[bool] = []
        # (bound, candidate); an entry is stale when the bound has risen since it was pushed.
        self._by_bound: list[tuple[float, int]] = []
        self._unvisited: list[tuple[float, int]] = []
        self._best: tuple[float, int] | None = None

    def add(self, bounds: Iterable[float]) -> range:
        """Numbers of new candidates with these lower bounds.

        Raises:
            MalformedProblemError: a bound is NaN.
        """
        first = len(self._bounds)
        for bound in bounds:
            entry = (_number("bound", bound), len(self._bounds))
            self._bounds.append(entry[0])
            self._objectives.append(inf)
            self._known.append(False)
            heapq.heappush(self._by_bound, entry)
            heapq.heappush(self._unvisited, entry)
        return range(first, len(self._bounds))

    def raise_bound(self, candidate: int, bound: float) -> None:
        """None; the candidate cannot do better than `bound` (nothing changes if that was known).

        Raises:
            UnknownCandidateError: no such candidate.
            MalformedProblemError: the bound is NaN.
        """
        self._check(candidate)
        if _number("bound", bound) > self._bounds[candidate]:
            self._bounds[candidate] = bound
            heapq.heappush(self._by_bound, (bound, candidate))
            if not self._known[candidate]:
                heapq.heappush(self._unvisited, (bound, candidate))

    def record(self, candidate: int, objective: float) -> None:
        """None; the candidate was found to reach `objective`, infinity if it is infeasible after all.

        Raises:
            UnknownCandidateError: no such candidate.
            MalformedProblemError: the objective is NaN.
        """
        self._check(candidate)
        self._known[candidate] = True
        if _number("objective", objective) == inf:
            if self._objectives[candidate] == inf:
                self.raise_bound(candidate, inf)
            return
        self._objectives[candidate] = min(objective, self._objectives[candidate])
        entry = (objective, candidate)
        if self._best is None or entry < self._best:
            self._best = entry

    def bound_of(self, candidate: int) -> float:
        """Lower bound of a candidate.

        Raises:
            UnknownCandidateError: no such candidate.
        """
        self._check(candidate)
        return self._bounds[candidate]

    def objective_of(self, candidate: int) -> float:
        """Best true objective of a candidate; infinity while there is none.

        Raises:
            UnknownCandidateError: no such candidate.
        """
        self._check(candidate)
        return self._objectives[candidate]

    @property
    def incumbent(self) -> int | None:
        """Candidate with the best true objective, None while there is none."""
        return None if self._best is None else self._best[1]

    @property
    def objective(self) -> float:
        """Best true objective so far; infinity while there is none."""
        return inf if self._best is None else self._best[0]

    @property
    def bound(self) -> float:
        """Least bound over all candidates, and no more than the objective; infinity without candidates."""
        while self._by_bound and self._by_bound[0][0] < self._bounds[self._by_bound[0][1]]:
            heapq.heappop(self._by_bound)
        least = self._by_bound[0][0] if self._by_bound else inf
        return min(least, self.objective)

    @property
    def gap(self) -> float:
        """Relative gap between objective and bound."""
        return relative_gap(self.objective, self.bound)

    @property
    def settled(self) -> bool:
        """Whether the search may end: the gap is within the tolerance, or every candidate is known to be infeasible."""
        return self.gap <= self._tolerance or self.bound == inf

    def next_candidate(self) -> int | None:
        """Candidate with the least bound among those not recorded, if that is below the objective; else None."""
        while self._unvisited:
            bound, candidate = self._unvisited[0]
            if not self._known[candidate] and bound == self._bounds[candidate]:
                return candidate if bound < self.objective else None
            heapq.heappop(self._unvisited)
        return None

    def certificate(self, method: str) -> Certificate:
        """What is proven now; `method` says how the bounds came about."""
        if self.gap <= self._tolerance:
            status: CertificateStatus = "OPTIMAL"
        elif self._best is not None:
            status = "FEASIBLE"
        else:
            status = "INFEASIBLE" if self.bound == inf else "UNKNOWN"
        return Certificate(status, self.objective, self.bound, self.gap, method, len(self._bounds), sum(self._known))

    def _check(self, candidate: int) -> None:
        """None; the candidate exists, or an error."""
        if not 0 <= candidate < len(self._bounds):
            raise UnknownCandidateError(candidate, len(self._bounds))


def _number(field: str, value: float) -> float:
    """The value as a float, which must not be NaN."""
    if isnan(value):
        raise MalformedProblemError(field=field, found=value, allowed="a number, not NaN")
    return float(value)

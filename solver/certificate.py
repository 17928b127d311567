"""What a search has proven: the best objective found, the bound under all that is left, and the gap between them."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf, isnan
from typing import Literal

from solver.errors import MalformedProblemError

CertificateStatus = Literal["OPTIMAL", "FEASIBLE", "INFEASIBLE", "UNKNOWN"]
"""OPTIMAL: the gap is within the tolerance. FEASIBLE, UNKNOWN: a limit came first, with, without a result.
INFEASIBLE: proven that there is none."""

ROUNDING = 1e-8
"""What the solvers' tolerances may take from a bound."""


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


def certify(objective: float, bound: float, tolerance: float) -> Certificate:
    """What a best objective and a bound under everything else prove; infinity stands for none found, none possible.

    Raises:
        MalformedProblemError: the objective or the bound is NaN, or the tolerance is not in [0, 1).

    >>> certify(2.0, 1.995, 0.005).status, certify(2.0, 1.5, 0.005).status
    ('OPTIMAL', 'FEASIBLE')
    """
    for field, value in (("objective", objective), ("bound", bound)):
        if isnan(value):
            raise MalformedProblemError(field=field, found=value, allowed="a number, not NaN")
    if not 0.0 <= tolerance < 1.0:
        raise MalformedProblemError(field="tolerance", found=tolerance, allowed="in [0, 1)")
    bound = min(bound, objective)
    gap = relative_gap(objective, bound)
    if objective == inf:
        return Certificate("INFEASIBLE" if bound == inf else "UNKNOWN", objective, bound, gap)
    return Certificate("OPTIMAL" if gap <= tolerance + ROUNDING else "FEASIBLE", objective, bound, gap)


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

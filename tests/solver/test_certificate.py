"""What an objective and a bound prove."""

from __future__ import annotations

from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.certificate import certify, relative_gap
from solver.errors import MalformedProblemError

POSITIVE = st.floats(min_value=1e-6, max_value=1e6)


@given(POSITIVE, st.floats(min_value=0.0, max_value=2.0), st.floats(min_value=0.0, max_value=0.5))
def test_status_follows_from_the_gap(objective: float, share: float, tolerance: float) -> None:
    """OPTIMAL exactly when no more than the tolerance (and rounding) of the objective lies above the bound."""
    certificate = certify(objective, objective * share, tolerance)
    missing = max(0.0, 1.0 - share)
    assert certificate.gap == pytest.approx(missing, abs=1e-12)
    assert certificate.bound <= certificate.objective == objective
    if abs(missing - tolerance) > 1e-7:
        assert certificate.status == ("OPTIMAL" if missing < tolerance else "FEASIBLE")


def test_rounding_of_a_solver_does_not_cost_the_proof() -> None:
    """A bound that is the cutoff itself, a solver's tolerance short, still proves the tolerance."""
    assert certify(1.0, 0.995 - 1e-9, 0.005).status == "OPTIMAL"
    assert certify(1.0, 1.0 - 1e-9, 0.0).status == "OPTIMAL"
    assert certify(1.0, 1.0 - 1e-6, 0.0).status == "FEASIBLE"


def test_without_an_objective() -> None:
    """Nothing found: proven infeasible when nothing is left, else unknown."""
    assert certify(inf, inf, 0.1).status == "INFEASIBLE"
    unknown = certify(inf, 3.0, 0.1)
    assert (unknown.status, unknown.bound, unknown.gap) == ("UNKNOWN", 3.0, inf)


def test_relative_gap() -> None:
    """The gap is a share of the objective, never negative, infinite where there is no objective to take a share of."""
    assert relative_gap(4.0, 3.0) == 0.25
    assert relative_gap(3.0, 4.0) == 0.0
    assert relative_gap(inf, 1.0) == inf
    assert relative_gap(0.0, -1.0) == inf
    assert relative_gap(0.0, 0.0) == 0.0


@pytest.mark.parametrize(("field", "values"), [("objective", (nan, 1.0, 0.1)), ("bound", (1.0, nan, 0.1))])
def test_what_is_not_a_number_is_refused(field: str, values: tuple[float, float, float]) -> None:
    """NaN is refused by name, as is a tolerance that is no share."""
    with pytest.raises(MalformedProblemError, match=f"^{field} must be a number, not NaN"):
        certify(*values)
    with pytest.raises(MalformedProblemError, match=r"^tolerance must be in \[0, 1\)"):
        certify(1.0, 1.0, 1.0)

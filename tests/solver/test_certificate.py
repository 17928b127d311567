"""The ledger of a search against a plain list of its candidates."""

from __future__ import annotations

from dataclasses import fields
from math import inf, nan

import pytest
from hypothesis import given
from hypothesis import strategies as st

from solver.certificate import Certificate, Ledger, relative_gap
from solver.errors import MalformedProblemError, UnknownCandidateError

VALUES = st.sampled_from([0.0, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, inf])
EVENTS = st.lists(st.tuples(st.sampled_from(["add", "raise", "record"]), st.integers(0, 9), VALUES), max_size=40)


@given(EVENTS)
def test_ledger_is_a_list_of_candidates(events: list[tuple[str, int, float]]) -> None:
    """After any events, incumbent, objective, bound and next candidate are what a plain list of candidates says."""
    ledger = Ledger(tolerance=0.1)
    bounds: list[float] = []
    objectives: list[float] = []
    known: set[int] = set()
    for kind, number, value in events:
        if kind == "add" or not bounds:
            assert ledger.add([value]) == range(len(bounds), len(bounds) + 1)
            bounds.append(value)
            objectives.append(inf)
            continue
        candidate = number % len(bounds)
        if kind == "raise":
            ledger.raise_bound(candidate, value)
            bounds[candidate] = max(bounds[candidate], value)
        else:
            ledger.record(candidate, value)
            known.add(candidate)
            objectives[candidate] = min(objectives[candidate], value)
            if objectives[candidate] == inf:
                bounds[candidate] = inf
        best = min(objectives)
        waiting = [c for c in range(len(bounds)) if c not in known and bounds[c] < best]
        assert ledger.objective == best
        assert ledger.incumbent == (objectives.index(best) if best < inf else None)
        assert ledger.bound == min(*bounds, best, inf)
        assert ledger.next_candidate() == min(waiting, key=lambda c: (bounds[c], c), default=None)
        assert [ledger.bound_of(c) for c in range(len(bounds))] == bounds
        assert [ledger.objective_of(c) for c in range(len(bounds))] == objectives


def test_best_first_search_ends_with_a_proof() -> None:
    """Visiting by bound, recording objectives, ends OPTIMAL before the candidates that cannot win are visited."""
    truth = {0: 10.0, 1: 6.0, 2: 9.0, 3: 20.0}
    ledger = Ledger(tolerance=0.0)
    ledger.add([4.0, 5.0, 5.5, 7.0])
    visited = []
    while not ledger.settled:
        candidate = ledger.next_candidate()
        assert candidate is not None
        visited.append(candidate)
        ledger.record(candidate, truth[candidate])
        ledger.raise_bound(candidate, truth[candidate])
    assert visited == [0, 1, 2]
    assert ledger.certificate("best first") == Certificate("OPTIMAL", 6.0, 6.0, 0.0, "best first", 4, 3)


def test_statuses() -> None:
    """UNKNOWN before any result, FEASIBLE with a gap, OPTIMAL within the tolerance, INFEASIBLE when all are so."""
    ledger = Ledger(tolerance=0.1)
    ledger.add([9.0, 8.0])
    assert ledger.certificate("").status == "UNKNOWN"
    ledger.record(0, 10.0)
    assert (ledger.certificate("").status, ledger.gap, ledger.settled) == ("FEASIBLE", pytest.approx(0.2), False)
    ledger.raise_bound(1, 9.5)
    assert (ledger.certificate("").status, ledger.gap, ledger.settled) == ("OPTIMAL", pytest.approx(0.1), True)
    hopeless = Ledger(tolerance=0.1)
    hopeless.add([1.0])
    hopeless.record(0, inf)
    assert (hopeless.certificate("").status, hopeless.bound, hopeless.settled) == ("INFEASIBLE", inf, True)


def test_certificate_holds_no_time() -> None:
    """The certificate's fields are what was proven and how, so that equal inputs give equal certificates."""
    names = [field.name for field in fields(Certificate)]
    assert names == ["status", "objective", "bound", "gap", "method", "candidates", "evaluated"]


@pytest.mark.parametrize(
    ("objective", "bound", "gap"),
    [
        (2.0, 1.5, 0.25),
        (2.0, 2.0, 0.0),
        (2.0, 3.0, 0.0),
        (inf, 1.0, inf),
        (inf, inf, inf),
        (0.0, -1.0, inf),
        (0.0, 0.0, 0.0),
    ],
)
def test_relative_gap(objective: float, bound: float, gap: float) -> None:
    """The gap is relative to the objective, never negative, and infinite where nothing was reached."""
    assert relative_gap(objective, bound) == gap


def test_wrong_use_is_refused() -> None:
    """Tolerances outside [0, 1), unknown candidates and NaN are errors that name what is allowed."""
    with pytest.raises(MalformedProblemError, match=r"^tolerance must be in \[0, 1\), got 1.0"):
        Ledger(tolerance=1.0)
    ledger = Ledger(tolerance=0.0)
    ledger.add([1.0])
    with pytest.raises(UnknownCandidateError, match=r"^candidate must be in \[0, 1\), got 1"):
        ledger.record(1, 2.0)
    with pytest.raises(MalformedProblemError, match="^objective must be a number"):
        ledger.record(0, nan)
    with pytest.raises(MalformedProblemError, match="^bound must be a number"):
        ledger.add([nan])

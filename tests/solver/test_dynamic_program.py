"""The dynamic program against enumeration."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from solver import dynamic_program
from solver.chain import ChainProblem, cost
from solver.dynamic_program import minimum_cost, minimum_sum, unit_windows
from solver.errors import MalformedProblemError
from tests.solver.enumeration import balanced_chain, feasible_choices, first_best, longest_walk, random_chain

SEEDS = range(300)


@pytest.mark.parametrize("seed", SEEDS)
def test_minimum_cost_is_the_first_best_of_all(seed: int) -> None:
    """Status, cost and choice are those of enumeration: with ties, the first choice in the order of the rows."""
    problem = random_chain(seed)
    choice, least = first_best(problem, lambda rows: longest_walk(problem, rows)[0])
    solution = minimum_cost(problem)
    assert solution.status == ("OPTIMAL" if choice else "INFEASIBLE")
    assert tuple(solution.choice.tolist()) == choice
    assert solution.objective == pytest.approx(least, rel=1e-9)
    assert solution.bound == pytest.approx(least, rel=1e-9)


def test_random_chains_cover_the_cases() -> None:
    """The random problems hold infeasible ones, ties, edges that matter and a resource, each more than a few times."""
    problems = [random_chain(seed) for seed in SEEDS]
    feasible = [problem for problem in problems if minimum_cost(problem).feasible]
    without_edges = [minimum_cost(replace(p, edge=np.zeros(len(p.stage)))).objective for p in feasible]
    assert 60 < len(problems) - len(feasible) < 200
    assert sum(free < minimum_cost(p).objective for p, free in zip(feasible, without_edges, strict=True)) > 40
    assert sum(problem.resource is not None for problem in feasible) > 20
    costs = [[longest_walk(p, choice)[0] for choice in feasible_choices(p)] for p in feasible]
    assert sum(found.count(min(found)) > 1 for found in costs) > 20


@pytest.mark.parametrize("seed", range(12))
def test_minimum_cost_of_edges_that_trade_with_work(seed: int) -> None:
    """Where cheap edges go with dear work, many passes are needed, and the result is still that of enumeration."""
    problem = balanced_chain(seed, stages=4, rows=56, total_units=32)
    _, least = first_best(problem, lambda rows: longest_walk(problem, rows)[0])
    assert minimum_cost(problem).objective == pytest.approx(least, rel=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_minimum_cost_takes_few_passes(seed: int) -> None:
    """Sixteen stages of 190 rows, 126 units: proven to 1e-9 within 30 passes; one where no edge is paid."""
    problem = balanced_chain(seed, stages=16, rows=3000, total_units=126)
    solution = minimum_cost(problem)
    assert solution.oracle_calls <= 30
    assert solution.objective == cost(problem, solution.choice)
    assert solution.objective * (1 - 1e-9) <= solution.bound <= solution.objective
    assert minimum_cost(replace(problem, edge=np.zeros(3000))).oracle_calls == 1


@pytest.mark.parametrize("seed", range(40))
def test_cutoff_tells_whether_anything_lies_below(seed: int) -> None:
    """CUTOFF at and under the least cost, with a bound that is at least the cutoff and proven; OPTIMAL above it."""
    problem = random_chain(seed)
    least = minimum_cost(problem).objective
    if least in (0.0, inf):
        least = 1.0
        problem = ChainProblem([0, 0], [1, 1], [1.0, 2.0], [0.0] * 2, [0.0] * 2, 1, 1)  # type: ignore[arg-type]
    for cutoff in (0.5 * least, 0.999 * least, least):
        solution = minimum_cost(problem, cutoff)
        assert solution.status == "CUTOFF"
        assert not solution.feasible
        assert cutoff <= solution.bound <= least * (1 + 1e-12)
    above = minimum_cost(problem, 1.001 * least)
    assert (above.status, above.objective) == ("OPTIMAL", pytest.approx(least, rel=1e-9))


@pytest.mark.parametrize("seed", range(40))
def test_blocks_change_nothing(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Handling the rows one at a time gives the same answer as all at once."""
    problem = random_chain(seed)
    expected = minimum_cost(problem)
    monkeypatch.setattr(dynamic_program, "_BLOCK_ENTRIES", 1)
    found = minimum_cost(problem)
    assert (found.choice.tolist(), found.objective, found.bound, found.oracle_calls) == (
        expected.choice.tolist(),
        expected.objective,
        expected.bound,
        expected.oracle_calls,
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_minimum_sum_is_the_first_best_of_all(seed: int) -> None:
    """Sum and choice are those of enumeration: with ties, the first choice in the order of the rows."""
    problem = random_chain(seed)
    values = problem.work + problem.edge
    choice, least = first_best(problem, lambda rows: float(values[list(rows)].sum()))
    solution = minimum_sum(problem, values)
    assert tuple(solution.choice.tolist()) == choice
    assert solution.objective == pytest.approx(least, rel=1e-9)
    assert solution.status == ("OPTIMAL" if choice else "INFEASIBLE")


@pytest.mark.parametrize("seed", range(100))
def test_unit_windows_are_those_of_feasible_assignments(seed: int) -> None:
    """Least and most units of a stage are reached by feasible assignments, and none goes beyond."""
    problem = random_chain(seed)
    units = [problem.units[list(choice)] for choice in feasible_choices(problem)]
    expected = np.stack((np.min(units, axis=0), np.max(units, axis=0)), axis=1).tolist() if units else []
    assert unit_windows(problem).tolist() == expected


def test_a_stage_without_rows_is_infeasible() -> None:
    """A stage that has no option leaves no assignment, and that is an answer."""
    problem = ChainProblem([0], [1], [1.0], [0.0], [0.0], 2, 1)  # type: ignore[arg-type]
    assert minimum_cost(problem).status == "INFEASIBLE"
    assert minimum_cost(problem).bound == inf
    assert unit_windows(problem).shape == (0, 2)


def test_values_of_a_sum_are_checked() -> None:
    """Values of another length than the problem's, or negative, are refused by name."""
    problem = ChainProblem([0], [1], [1.0], [0.0], [0.0], 1, 1)  # type: ignore[arg-type]
    for values in ([1.0, 2.0], [-1.0]):
        with pytest.raises(MalformedProblemError, match="^values must be"):
            minimum_sum(problem, values)

"""Cutting planes with oracles that know a chain."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from solver.arrays import IntArray
from solver.assignment import AssignmentProblem, Path, chain_assignment, chain_paths
from solver.chain import ChainProblem
from solver.cutting_planes import Oracle, cutting_planes
from solver.dynamic_program import minimum_cost
from solver.errors import MalformedProblemError
from tests.solver.enumeration import balanced_chain, path_of_walk, random_chain


def oracle_of(chain: ChainProblem) -> Oracle:
    """Oracle that replays the chain and returns its longest walk."""

    def oracle(choice: IntArray) -> tuple[float, list[Path]]:
        length, path = path_of_walk(chain, choice)
        return length, [path]

    return oracle


def with_one_path(chain: ChainProblem) -> AssignmentProblem:
    """The chain with nothing but the path that turns back at the first stage."""
    return chain_assignment(chain, paths=chain_paths(chain)[:1])


def test_all_paths_by_demand_give_the_optimum() -> None:
    """From a single path, cuts on demand reach the dynamic program's optimum; infeasible chains are told."""
    for seed in range(60):
        chain = random_chain(seed)
        result = cutting_planes(with_one_path(chain), oracle_of(chain))
        expected = minimum_cost(chain)
        assert result.status == expected.status
        assert result.objective == pytest.approx(expected.objective, rel=1e-6, abs=1e-9)
        assert result.bound <= expected.objective


@pytest.mark.parametrize("gap", [0.0, 0.05])
def test_gap_is_kept(gap: float) -> None:
    """OPTIMAL means that the true cost is within the gap of a bound that the optimum respects."""
    chain = balanced_chain(1, stages=6, rows=150, total_units=48)
    result = cutting_planes(with_one_path(chain), oracle_of(chain), gap=gap)
    assert result.status == "OPTIMAL"
    assert result.bound <= minimum_cost(chain).objective <= result.objective
    assert result.objective <= (1 + gap + 1e-6) * result.bound


def test_a_good_start_saves_rounds() -> None:
    """Starting at the optimum takes no more rounds than starting at nothing, and ends at the same cost."""
    chain = balanced_chain(2, stages=6, rows=150, total_units=48)
    best = minimum_cost(chain)
    cold = cutting_planes(with_one_path(chain), oracle_of(chain), gap=0.01)
    warm = cutting_planes(with_one_path(chain), oracle_of(chain), gap=0.01, start=best.choice)
    assert warm.iterations <= cold.iterations
    assert warm.objective == pytest.approx(best.objective, rel=1e-9)


def test_paths_found_serve_a_later_search() -> None:
    """With the paths of one search from the start, a second one ends in a single round."""
    chain = balanced_chain(3, stages=6, rows=150, total_units=48)
    problem = with_one_path(chain)
    first = cutting_planes(problem, oracle_of(chain))
    second = cutting_planes(replace(problem, paths=problem.paths + first.paths), oracle_of(chain))
    assert first.iterations > 1
    assert (second.iterations, second.objective) == (1, pytest.approx(first.objective, rel=1e-6))


def test_more_paths_at_a_time_save_rounds() -> None:
    """An oracle that returns the walks of other choices too ends in fewer programs, at the same cost."""
    chain = balanced_chain(3, stages=6, rows=150, total_units=48)
    every = chain_paths(chain)

    def generous(choice: IntArray) -> tuple[float, list[Path]]:
        length, path = path_of_walk(chain, choice)
        return length, [path, *every]

    one, many = (cutting_planes(with_one_path(chain), oracle) for oracle in (oracle_of(chain), generous))
    assert many.iterations <= 2 < one.iterations
    assert many.objective == pytest.approx(one.objective, rel=1e-6)


def test_greatest_global_value_is_part_of_the_cost() -> None:
    """With a global value for each row, the true optimum over both parts is found, as by all paths at once."""
    chain = balanced_chain(4, stages=4, rows=60, total_units=32)
    values = np.random.default_rng(4).uniform(0.0, chain.work.max(), 60)
    whole = replace(chain_assignment(chain), global_value=values)

    def oracle(choice: IntArray) -> tuple[float, list[Path]]:
        length, path = path_of_walk(chain, choice)
        return length + whole.greatest_global(choice), [path]

    by_demand = cutting_planes(replace(whole, paths=whole.paths[:1]), oracle)
    at_once = cutting_planes(whole, oracle)
    assert at_once.iterations == 1
    assert by_demand.objective == pytest.approx(at_once.objective, rel=1e-6)


def test_cutoff_ends_the_search() -> None:
    """With a cutoff under the optimum the search ends as CUTOFF, and its bound is at least that."""
    chain = balanced_chain(5, stages=6, rows=150, total_units=48)
    cutoff = 0.97 * minimum_cost(chain).objective
    result = cutting_planes(with_one_path(chain), oracle_of(chain), cutoff=cutoff)
    assert result.status == "CUTOFF"
    assert cutoff <= result.bound <= minimum_cost(chain).objective


def test_limits_are_no_proof() -> None:
    """Out of rounds or of time the status is not OPTIMAL, and the bound still holds."""
    chain = balanced_chain(3, stages=6, rows=150, total_units=48)
    least = minimum_cost(chain).objective
    one_round = cutting_planes(with_one_path(chain), oracle_of(chain), iterations=1)
    assert (one_round.status, one_round.iterations) == ("FEASIBLE", 1)
    assert one_round.bound <= least <= one_round.objective
    no_time = cutting_planes(with_one_path(chain), oracle_of(chain), seconds=0.0)
    assert (no_time.status, no_time.iterations, no_time.choice.tolist()) == ("UNKNOWN", 0, [])


def test_a_loose_oracle_is_no_proof() -> None:
    """An oracle whose paths fall short of its costs ends the search as FEASIBLE, with the bound that was proven."""
    chain = balanced_chain(6, stages=4, rows=60, total_units=32)

    def loose(choice: IntArray) -> tuple[float, list[Path]]:
        length, path = path_of_walk(chain, choice)
        return 1.5 * length, [path]

    result = cutting_planes(with_one_path(chain), loose)
    assert result.status == "FEASIBLE"
    assert result.bound == pytest.approx(minimum_cost(chain).objective, rel=1e-6)
    assert result.objective == pytest.approx(1.5 * minimum_cost(chain).objective, rel=1e-6)


def test_a_path_longer_than_its_cost_is_refused() -> None:
    """A path that exceeds the true cost of the choice that it came with would cut off optima: it is an error."""
    chain = balanced_chain(7, stages=4, rows=60, total_units=32)

    def lying(choice: IntArray) -> tuple[float, list[Path]]:
        length, path = path_of_walk(chain, choice)
        return 0.9 * length, [path]

    with pytest.raises(MalformedProblemError, match="^oracle path must be <= "):
        cutting_planes(with_one_path(chain), lying)

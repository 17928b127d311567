"""Rows that no assignment under a cutoff takes: none is lost that one takes, and most of the others are told."""

from __future__ import annotations

from dataclasses import replace
from math import inf

import numpy as np
import pytest

from solver.assignment import chain_assignment, chain_paths
from solver.elimination import Elimination
from tests.solver.enumeration import balanced_chain, feasible_choices, random_chain


@pytest.mark.parametrize("seed", range(60))
@pytest.mark.parametrize("slack", [0.9, 1.0, 1.1, 1.5])
def test_rows_of_assignments_under_the_cutoff_stay(seed: int, slack: float) -> None:
    """By enumeration: every row that some assignment under the cutoff takes is left, with a global value or without."""
    chain = random_chain(seed)
    values = np.random.default_rng(seed).uniform(0.0, chain.work.max(initial=1.0), len(chain.stage))
    problem = replace(chain_assignment(chain), global_value=values if seed % 2 else None)
    costs = {
        tuple(choice): max(problem.path_length(path, choice) for path in problem.paths)
        + problem.greatest_global(np.array(choice))
        for choice in feasible_choices(chain)
    }
    cutoff = slack * min(costs.values(), default=1.0)
    wanted = {row for choice, cost in costs.items() if cost < cutoff for row in choice}
    left = Elimination(problem, cutoff).left()
    assert wanted <= (set() if left is None else set(np.flatnonzero(left).tolist()))


def test_nothing_leaves_without_a_cutoff() -> None:
    """Every row is left where any cost is allowed."""
    problem = chain_assignment(random_chain(1))
    left = Elimination(problem, inf).left()
    assert left is not None
    assert left.all()


def test_a_path_over_the_cutoff_leaves_nothing() -> None:
    """Under a tenth of what one path takes at least no stage has a row left: no program is needed."""
    chain = balanced_chain(3, stages=4, rows=40, total_units=32)
    problem = chain_assignment(chain, paths=chain_paths(chain)[:1])
    least = min(problem.path_length(problem.paths[0], choice) for choice in feasible_choices(chain))
    assert Elimination(problem, 0.1 * least).left() is None

"""States and moves of a chain against enumeration."""

from __future__ import annotations

import pytest

from tests.solver.enumeration import feasible_choices, random_chain


@pytest.mark.parametrize("seed", range(80))
def test_rows_kept_are_those_of_feasible_assignments(seed: int) -> None:
    """A row is kept at its stage exactly when some assignment that uses up the totals takes it."""
    problem = random_chain(seed)
    choices = list(feasible_choices(problem))
    assert bool(problem.moves) == bool(choices)
    for stage, moves in enumerate(problem.moves):
        assert moves.rows.tolist() == sorted({choice[stage] for choice in choices})


@pytest.mark.parametrize("seed", range(80))
def test_walks_over_the_moves_are_the_feasible_assignments(seed: int) -> None:
    """Following the moves from the one first state to the one last gives every feasible assignment, and no other."""
    problem = random_chain(seed)
    num_states = [moves.source.shape[1] for moves in problem.moves[1:]] + [1]
    walks: list[tuple[tuple[int, ...], int]] = [((), 0)] if problem.moves else []
    for moves, following in zip(problem.moves, num_states, strict=False):
        walks = [
            ((*taken, row), int(moves.source[group, before]))
            for taken, before in walks
            for row, group in zip(moves.rows.tolist(), moves.group.tolist(), strict=True)
            if moves.source[group, before] < following
        ]
    assert sorted(taken for taken, _ in walks) == sorted(feasible_choices(problem))

"""The chain problem: its cost, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.chain import ChainProblem, cost
from solver.errors import MalformedProblemError
from tests.solver.enumeration import feasible_choices, longest_walk, random_chain


@pytest.mark.parametrize("seed", range(60))
def test_cost_is_the_longest_walk(seed: int) -> None:
    """The recursion gives the longest walk: enter at a stage, pass through others, turn back, by plain sums."""
    problem = random_chain(seed)
    for choice in feasible_choices(problem):
        assert cost(problem, choice) == pytest.approx(longest_walk(problem, choice)[0], rel=1e-12)


def test_cost_by_hand() -> None:
    """Two stages: work of the first 5, walk 1 plus work of the second 7, entry of the second 3 plus 7."""
    problem = ChainProblem([0, 1], [1, 1], [5.0, 7.0], [1.0, 9.0], [0.0, 3.0], 2, 2)  # type: ignore[arg-type]
    assert cost(problem, [0, 1]) == 10.0


def test_arrays_are_copied_and_read_only() -> None:
    """Changing the caller's array later changes nothing, and the problem's own cannot be written."""
    work = np.array([1.0])
    problem = ChainProblem([0], [1], work, [0.0], [0.0], 1, 1)  # type: ignore[arg-type]
    work[0] = 2.0
    assert problem.work[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        problem.work[0] = 3.0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"stage": [0, 2]}, "ChainProblem.stage"),
        ({"stage": [[0, 1]]}, "ChainProblem.stage"),
        ({"stage": [0.0, 1.0]}, "ChainProblem.stage"),
        ({"units": [1]}, "ChainProblem.units"),
        ({"units": [1, -1]}, "ChainProblem.units"),
        ({"work": [1.0, np.nan]}, "ChainProblem.work"),
        ({"pass_through": [1.0, np.inf]}, "ChainProblem.pass_through"),
        ({"edge": [0.0, -1.0]}, "ChainProblem.edge"),
        ({"resource": [1, 1, 1], "total_resource": 2}, "ChainProblem.resource"),
        ({"num_stages": 0}, "ChainProblem.num_stages"),
        ({"total_units": -1}, "ChainProblem.total_units"),
        ({"total_resource": 3}, "ChainProblem.total_resource"),
    ],
)
def test_malformed_fields_are_named(changes: dict[str, Any], field: str) -> None:
    """A wrong shape, type, length or range is refused with the name of the field."""
    problem = ChainProblem([0, 1], [1, 1], [5.0, 7.0], [1.0, 9.0], [0.0, 3.0], 2, 2)  # type: ignore[arg-type]
    with pytest.raises(MalformedProblemError, match=rf"^{field} must be") as caught:
        replace(problem, **changes)
    assert caught.value.field == field

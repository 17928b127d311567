"""The assignment problem: paths of a chain, and what it refuses."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from solver.assignment import AssignmentProblem, Path, SideConstraint, chain_assignment, chain_paths
from solver.chain import cost
from solver.errors import MalformedProblemError
from tests.solver.enumeration import feasible_choices, random_chain


@pytest.mark.parametrize("seed", range(60))
def test_the_longest_chain_path_is_the_cost(seed: int) -> None:
    """For every assignment of a chain, the longest of its paths is its cost."""
    chain = random_chain(seed)
    problem = chain_assignment(chain)
    for choice in feasible_choices(chain):
        longest = max(problem.path_length(path, choice) for path in problem.paths)
        assert longest == pytest.approx(cost(chain, choice), rel=1e-12)


def test_stages_without_edges_need_no_entry() -> None:
    """Without edges all paths enter at the first stage: one a stage, not one a pair of stages."""
    chain = random_chain(4)
    free = replace(chain, edge=np.zeros(len(chain.stage)))
    assert len(chain_paths(free)) == chain.num_stages


def test_greatest_global_is_over_the_chosen_rows() -> None:
    """The greatest global value looks at chosen rows only, and is 0 where the problem has none."""
    problem = AssignmentProblem([0, 0, 1], [1, 1, 1], np.ones((3, 1)), 2, 2, (Path(np.ones((2, 1))),))  # type: ignore[arg-type]
    assert problem.greatest_global([0, 2]) == 0.0
    assert replace(problem, global_value=np.array([1.0, 9.0, 2.0])).greatest_global([0, 2]) == 2.0


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"stage": [0, 5]}, "AssignmentProblem.stage"),
        ({"units": [1.5, 1.0]}, "AssignmentProblem.units"),
        ({"features": np.ones(2)}, "AssignmentProblem.features"),
        ({"features": np.array([[1.0], [np.inf]])}, "AssignmentProblem.features"),
        ({"paths": ()}, "AssignmentProblem.paths"),
        ({"paths": (Path(np.ones((2, 3))),)}, "Path.coefficients"),
        ({"global_value": [1.0]}, "AssignmentProblem.global_value"),
        ({"resource": [-1, 1]}, "AssignmentProblem.resource"),
        ({"side_constraints": (SideConstraint([1.0], "<=", 1.0),)}, "AssignmentProblem.side_constraints"),  # type: ignore[arg-type]
        ({"total_resource": 1}, "AssignmentProblem.total_resource"),
        ({"num_stages": 0}, "AssignmentProblem.(num_stages, total_units, total_resource)"),
    ],
)
def test_malformed_fields_are_named(changes: dict[str, Any], field: str) -> None:
    """A wrong shape, type, length or range is refused with the name of the field."""
    problem = AssignmentProblem([0, 1], [1, 1], np.ones((2, 1)), 2, 2, (Path(np.ones((2, 1))),))  # type: ignore[arg-type]
    with pytest.raises(MalformedProblemError) as caught:
        replace(problem, **changes)
    assert caught.value.field == field


def test_malformed_paths_and_constraints_are_named() -> None:
    """Coefficients that are no matrix, constants that are not finite and unknown senses are refused by name."""
    with pytest.raises(MalformedProblemError, match=r"^Path\.coefficients must be"):
        Path(np.ones(3))
    with pytest.raises(MalformedProblemError, match=r"^Path\.constant must be"):
        Path(np.ones((1, 1)), np.inf)
    with pytest.raises(MalformedProblemError, match=r"^SideConstraint\.sense must be '<=', '>=' or '=='"):
        SideConstraint([1.0], "<", 1.0)  # type: ignore[arg-type]
    with pytest.raises(MalformedProblemError, match=r"^SideConstraint\.right_hand_side must be"):
        SideConstraint([1.0], "<=", np.nan)  # type: ignore[arg-type]

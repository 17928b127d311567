"""Pareto fronts against their definition."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from solver.errors import MalformedProblemError
from solver.pareto import front

MATRICES = hnp.array_shapes(min_dims=2, max_dims=2, min_side=1, max_side=40).flatmap(
    lambda shape: hnp.arrays(
        np.float64,
        (shape[0], 1 + shape[1] % 6),
        elements=st.sampled_from([0.0, -0.0, 1.0, 2.0, 3.5, -1.0, 1e300, np.inf, -np.inf]),
    )
)


def front_by_definition(values: np.ndarray, groups: np.ndarray) -> list[int]:
    """Rows that no other row of their group dominates and that no earlier one equals."""
    kept = []
    for row, own in enumerate(values):
        rivals = np.flatnonzero(groups == groups[row])
        dominated = any((values[rival] <= own).all() and (values[rival] < own).any() for rival in rivals)
        repeated = any(rival < row and (values[rival] == own).all() for rival in rivals)
        if not dominated and not repeated:
            kept.append(row)
    return kept


@given(MATRICES, st.integers(1, 4), st.integers(0, 2**32 - 1))
def test_front_is_the_definition(values: np.ndarray, num_groups: int, seed: int) -> None:
    """The front is what the definition says, in every dimension, with ties, duplicates and infinities."""
    groups = np.random.default_rng(seed).integers(-2, num_groups, len(values))
    assert front(values, groups).tolist() == front_by_definition(values, groups)


@pytest.mark.parametrize("dimensions", [1, 2, 3, 6])
def test_front_of_continuous_values(dimensions: int) -> None:
    """The front of values without ties is what the definition says, with and without groups."""
    generator = np.random.default_rng(dimensions)
    values, groups = generator.random((300, dimensions)), generator.integers(0, 5, 300)
    assert front(values, groups).tolist() == front_by_definition(values, groups)
    assert front(values).tolist() == front_by_definition(values, np.zeros(300))


@pytest.mark.parametrize("dimensions", [2, 4])
def test_front_ignores_the_order_of_rows(dimensions: int) -> None:
    """Shuffling the rows changes the numbers of the kept rows, not the rows."""
    generator = np.random.default_rng(7)
    values, groups = generator.random((2000, dimensions)), generator.integers(0, 20, 2000)
    order = generator.permutation(2000)
    assert np.sort(order[front(values[order], groups[order])]).tolist() == front(values, groups).tolist()


def test_front_of_nothing_is_empty() -> None:
    """No rows give no front, of the integer type that indexes arrays."""
    assert front(np.empty((0, 3))).tolist() == []
    assert front(np.empty((0, 2)), np.empty(0, dtype=int)).dtype == np.int64


@pytest.mark.parametrize(
    ("values", "groups", "field"),
    [
        ([1.0, 2.0], None, "values"),
        (np.empty((3, 0)), None, "values"),
        ([[1.0, np.nan]], None, "values"),
        ([[1.0, 2.0]], [0, 1], "groups"),
        ([[1.0, 2.0]], [0.5], "groups"),
    ],
)
def test_malformed_arguments_are_named(values: object, groups: object, field: str) -> None:
    """A wrong shape, type or entry is refused with the name of the argument."""
    with pytest.raises(MalformedProblemError, match=f"^{field} must be") as caught:
        front(values, groups)  # type: ignore[arg-type]
    assert caught.value.field == field

"""What counts as a difference from one process."""

import math

import pytest

from runtime.agreement import Agreement
from runtime.reference import worse
from runtime.verify import Verification
from tests.runtime.jobs import small_job, small_model


@pytest.mark.parametrize(("one", "other"), [(math.nan, 0.0), (0.0, math.nan), (math.nan, math.nan)])
def test_what_is_not_a_number_is_worse_than_any_number(one: float, other: float) -> None:
    """In either place; max keeps the first of two that it cannot compare."""
    assert math.isnan(worse(one, other))
    assert worse(0.1, 0.2) == worse(0.2, 0.1) == 0.2


@pytest.mark.parametrize(("loss", "gradient"), [(math.nan, 0.0), (0.0, math.nan), (math.inf, 0.0)])
def test_a_shape_whose_differences_are_not_finite_does_not_hold(loss: float, gradient: float) -> None:
    """Training that ends in nan is not that of one process."""
    job = small_job(small_model(2), tp=2)
    assert not Verification(job, Agreement(loss, gradient, "weight")).holds
    assert Verification(job, Agreement(0.0, 0.0, "weight")).holds

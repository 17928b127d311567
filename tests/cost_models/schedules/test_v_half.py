import numpy as np
import pytest

from cost_models.schedules import v_half
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import COSTS, equal_times

RANKS = [2, 3, 4, 6, 8]


def bubble_units(p: int, m: int, cost: tuple[float, ...] = (1.0, 1.0, 1.0)) -> float:
    """The simulated bubble, in units of a chunk."""
    return float(simulate(v_half.actions(p, 2, m), equal_times(p, 2, *cost)).span_s) - 2 * m * sum(cost)


@pytest.mark.parametrize("p", RANKS)
def test_the_bubble_is_the_published_one_at_the_peak(p: int) -> None:
    """(6p - 1 - 3k) units, k = p + 2, or the p - 1 of the way down; two more for odd p, more for fewer than k / 2."""
    for m in range(1, 17):
        k, times = p + 2, equal_times(p, 2, 1, 1, 1)
        published = max(p - 1, 6 * p - 1 - 3 * k)
        expected = published + 2 * (p % 2)
        assert v_half.closed_form_s(m, times) == pytest.approx(6 * m + expected, rel=1e-13)
        assert v_half.is_exact(m, times) == (2 * m >= k)
        assert (bubble_units(p, m) == expected) == (2 * m >= k)
        assert (bubble_units(p, m) == published) == (2 * m >= k and p % 2 == 0)


def test_the_bubbles_are_those_of_the_authors_scheduler() -> None:
    """Measured with it: 2.5 T for p = 4 at 6 chunks, 8.5 T for p = 8 at 10; T is two chunks."""
    assert (v_half.peak_chunks(4), bubble_units(4, 16) / 2) == (6, 2.5)
    assert (v_half.peak_chunks(8), bubble_units(8, 16) / 2) == (10, 8.5)


@pytest.mark.parametrize("p", range(2, 17))
def test_the_bubble_does_not_grow_with_the_batch(p: int) -> None:
    """Twice the micro-batches have the same bubble, with equal parts and with others."""
    for cost in COSTS:
        assert bubble_units(p, 2 * p, cost) == pytest.approx(bubble_units(p, 4 * p, cost), rel=1e-12)


@pytest.mark.parametrize("p", RANKS)
def test_the_closed_form_is_for_equal_parts(p: int) -> None:
    """With F, B, W = 1, 1.2, 0.8 the bubble is larger than with equal parts of the same length."""
    times = equal_times(p, 2, 1, 1.2, 0.8)
    assert not v_half.is_exact(16, times)
    assert simulate(v_half.actions(p, 2, 16), times).span_s > v_half.closed_form_s(16, times) + 0.1


def test_exactness_is_told_by_assignment() -> None:
    """m may be a column."""
    assert v_half.is_exact(np.array([4, 5]), equal_times(8, 2, 1, 1, 1)).tolist() == [False, True]


@pytest.mark.parametrize(("p", "v", "m"), [(1, 2, 4), (2, 1, 4), (2, 2, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not v_half.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"v-half needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        v_half.actions(p, v, m)

import numpy as np
import pytest

from cost_models.schedules import zb_h2
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import COSTS, equal_times, longest_rank_s

RANKS = [1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("p", RANKS)
def test_the_span_has_the_bubble_of_the_way_down(p: int, cost: tuple[float, ...]) -> None:
    """(p - 1) F with m >= 2p - 1; with m < 2p - 2 the step is longer."""
    for m in range(1, 17):
        times = equal_times(p, 1, *cost)
        expected_s = m * sum(cost) + (p - 1) * cost[0]
        span_s = simulate(zb_h2.actions(p, 1, m), times).span_s
        assert zb_h2.closed_form_s(m, times) == pytest.approx(expected_s, rel=1e-13)
        assert zb_h2.is_exact(m, times) == (m >= 2 * p - 1)
        if m >= 2 * p - 1:
            assert span_s == pytest.approx(expected_s, rel=1e-13)
        elif m < 2 * p - 2:
            assert span_s > expected_s + 0.1


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("p", RANKS)
def test_the_step_of_a_rank_has_the_published_bubble(p: int, cost: tuple[float, ...]) -> None:
    """(p - 1) (F + B - 2W) from a rank's own start to its own end, 0 for equal parts, if and only if m >= 2p - 1."""
    for m in range(1, 17):
        f, b, w = cost
        published_s = m * sum(cost) + (p - 1) * (f + b - 2 * w)
        longest_s = longest_rank_s(zb_h2.actions(p, 1, m), equal_times(p, 1, *cost))
        assert (longest_s == pytest.approx(published_s, rel=1e-13)) == (m >= 2 * p - 1)


@pytest.mark.parametrize(("p", "m"), [(2, 3), (3, 7), (4, 8), (8, 15), (8, 20)])
def test_equal_ranks_are_exact_whatever_the_shares(p: int, m: int) -> None:
    """Any F, B and W."""
    for f, b, w in np.random.default_rng(22).random((200, 3)):
        times = equal_times(p, 1, f, b, w)
        assert zb_h2.is_exact(m, times)
        assert simulate(zb_h2.actions(p, 1, m), times).span_s == pytest.approx(zb_h2.closed_form_s(m, times), rel=1e-12)


def test_longer_input_gradients_leave_a_larger_bubble() -> None:
    """Both sides of what the bubble of (p - 1) F needs: B <= 2W and B <= 2F."""
    for cost, bubble_s in (((1, 2, 1), 3), ((1, 2.2, 1), 3 * 1.2), ((1, 2.5, 2), 3 * 1.5), ((1, 2.5, 1), 3 * 1.5)):
        span_s = simulate(zb_h2.actions(4, 1, 9), equal_times(4, 1, *cost)).span_s
        assert span_s - 9 * sum(cost) == pytest.approx(bubble_s, rel=1e-12)


@pytest.mark.parametrize(("p", "v", "m"), [(0, 1, 1), (2, 2, 4), (2, 1, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not zb_h2.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"zb-h2 needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        zb_h2.actions(p, v, m)

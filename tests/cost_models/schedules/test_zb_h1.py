import numpy as np
import pytest

from cost_models.schedules import zb_h1
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import COSTS, equal_times, random_times

RANKS = [1, 2, 3, 4, 6, 8]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("p", RANKS)
def test_the_bubble_is_the_published_one_from_p_micro_batches_on(p: int, cost: tuple[float, ...]) -> None:
    """(p - 1) (F + B - W) with m >= p; with fewer, each that is missing leaves one weight gradient uncovered."""
    for m in range(1, 17):
        times, (f, b, w) = equal_times(p, 1, *cost), cost
        published_s = m * (f + b + w) + (p - 1) * (f + b - w)
        span_s = simulate(zb_h1.actions(p, 1, m), times).span_s
        assert zb_h1.closed_form_s(m, times) == pytest.approx(published_s, rel=1e-13)
        assert span_s == pytest.approx(published_s + max(0, p - m) * w, rel=1e-13)
        assert zb_h1.is_exact(m, times) == (m >= p)


@pytest.mark.parametrize(("p", "m"), [(2, 2), (3, 7), (4, 8), (8, 8), (8, 16)])
def test_equal_ranks_are_exact_whatever_the_shares(p: int, m: int) -> None:
    """Any F, B and W: where W is longer than B or F, the bubble is (p - 1) F or (p - 1) B."""
    for f, b, w in np.random.default_rng(20).random((200, 3)):
        times = equal_times(p, 1, f, b, w)
        assert zb_h1.is_exact(m, times)
        assert simulate(zb_h1.actions(p, 1, m), times).span_s == pytest.approx(zb_h1.closed_form_s(m, times), rel=1e-12)


def test_the_published_bubble_needs_short_weight_gradients() -> None:
    """With W > B the weight gradients of the last rank are not covered: the bubble is (p - 1) F."""
    times = equal_times(4, 1, 1.0, 0.8, 1.2)
    assert simulate(zb_h1.actions(4, 1, 8), times).span_s == pytest.approx(8 * 3 + 3 * 1.0, rel=1e-13)


def test_exactness_is_told_by_assignment() -> None:
    """Unequal ranks, edges and hops make the closed form an estimate."""
    times = random_times(np.random.default_rng(21), 4, 1, batch=5)
    assert not zb_h1.is_exact(8, times).any()
    assert not zb_h1.is_exact(8, equal_times(4, 1, 1, 1, 1, hop=0.1))
    assert not zb_h1.is_exact(8, equal_times(4, 1, 1, 1, 1, first=0.1))
    assert zb_h1.is_exact(np.array([3, 4]), equal_times(4, 1, 1, 1, 1)).tolist() == [False, True]


def test_each_rank_keeps_as_many_weight_gradients_back_as_its_number() -> None:
    """p = 3, m = 4: warm up as 1F1B, then forward, input gradient, and the weight gradients that are due."""
    table = zb_h1.actions(3, 1, 4)
    orders = ["".join("FBIW"[action.kind] for action in table.rank_actions(rank)) for rank in range(3)]
    assert orders == ["FFFIWFIWIWIW", "FFIFIWFIWIWW", "FIFIFIWFIWWW"]


@pytest.mark.parametrize(("p", "v", "m"), [(0, 1, 1), (2, 2, 4), (2, 1, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not zb_h1.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"zb-h1 needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        zb_h1.actions(p, v, m)

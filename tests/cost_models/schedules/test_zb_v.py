import numpy as np
import pytest

from cost_models.schedules import zb_v
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import COSTS, equal_times, longest_rank_s

RANKS = [2, 3, 4, 6, 8]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("p", RANKS)
def test_the_span_has_half_the_bubble_of_the_way_down(p: int, cost: tuple[float, ...]) -> None:
    """(p - 1) max(B, 2 (B - W)) / 2 with m >= 2p - 1, which is (p - 1) F / 2 for equal parts.

    With fewer the step is longer, but for equal parts only where 2m < 3p - 1.
    """
    for m in range(1, 17):
        f, b, w = cost
        times = equal_times(p, 2, f / 2, b / 2, w / 2)
        expected_s = m * sum(cost) + (p - 1) / 2 * max(b, 2 * (b - w))
        span_s = simulate(zb_v.actions(p, 2, m), times).span_s
        assert zb_v.closed_form_s(m, times) == pytest.approx(expected_s, rel=1e-13)
        assert zb_v.is_exact(m, times) == (m >= 2 * p - 1)
        if m >= 2 * p - 1 or (f == b == w and 2 * m >= 3 * p - 1):
            assert span_s == pytest.approx(expected_s, rel=1e-13)
        else:
            assert span_s > expected_s + 0.1


@pytest.mark.parametrize("p", RANKS)
def test_no_rank_waits_once_it_has_begun(p: int) -> None:
    """The published bubble of 0 is that of a rank's own step; it needs equal parts and m >= 2p - 1."""
    for m in range(1, 20):
        table = zb_v.actions(p, 2, m)
        idle_s = longest_rank_s(table, equal_times(p, 2, 1, 1, 1)) - 6 * m
        assert (idle_s == 0) == (m >= 2 * p - 1)
        assert longest_rank_s(table, equal_times(p, 2, 1, 1.2, 0.8)) - 6 * m > 0.1


@pytest.mark.parametrize(("p", "cost_s", "span_s"), [(4, 1.2, 1.8), (8, 2.8, 4.2)])
def test_unequal_parts_have_the_measured_bubbles(p: int, cost_s: float, span_s: float) -> None:
    """F, B, W = 1, 1.2, 0.8 in two chunks: the bubbles of the authors' scheduler."""
    table, times = zb_v.actions(p, 2, 2 * p), equal_times(p, 2, 0.5, 0.6, 0.4)
    assert longest_rank_s(table, times) - 6 * p == pytest.approx(cost_s)
    assert simulate(table, times).span_s - 6 * p == pytest.approx(span_s)


@pytest.mark.parametrize(("p", "m"), [(2, 3), (3, 7), (4, 8), (8, 15), (8, 20)])
def test_the_closed_form_is_exact_where_it_says_so(p: int, m: int) -> None:
    """Whatever F <= B and W <= B; where W is longer it mostly is not."""
    table, missed = zb_v.actions(p, 2, m), 0
    for f, b, w in np.random.default_rng(23).random((300, 3)):
        times = equal_times(p, 2, f, b, w)
        close = simulate(table, times).span_s == pytest.approx(zb_v.closed_form_s(m, times), rel=1e-12)
        assert close or not zb_v.is_exact(m, times)
        assert zb_v.is_exact(m, times) == (f <= b and w <= b)
        missed += not close
    assert missed > 100


def test_rank_0_ends_with_its_input_gradients() -> None:
    """p = 2, m = 4: three forwards down, then the turn at once; the last rank keeps weight gradients for the end."""
    table = zb_v.actions(2, 2, 4)
    names = ["Ff", "", "Ii", "Ww"]
    orders = [" ".join(f"{names[a.kind][a.chunk]}{a.micro_batch}" for a in table.rank_actions(r)) for r in range(2)]
    assert orders[0] == "F0 F1 F2 f0 i0 w0 f1 i1 w1 F3 I0 W0 f2 i2 w2 I1 W1 f3 i3 w3 I2 W2 I3 W3"
    assert orders[1] == "F0 f0 F1 f1 i0 w0 F2 I0 W0 f2 i1 w1 F3 I1 W1 f3 i2 w2 I2 i3 I3 W2 w3 W3"


@pytest.mark.parametrize(("p", "v", "m"), [(1, 2, 4), (2, 1, 4), (2, 2, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not zb_v.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"zb-v needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        zb_v.actions(p, v, m)

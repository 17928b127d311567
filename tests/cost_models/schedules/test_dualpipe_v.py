import numpy as np
import pytest

from cost_models.schedules import dualpipe_v
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import COSTS, equal_times
from tests.cost_models.schedules.pairs import paired_span_s

RANKS = [2, 3, 4, 6, 8]
SIZES = [(p, m) for p in RANKS for m in (*range(2 * p, 17), 2 * p + 5)]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_bubble_of_actions_one_after_the_other(p: int, m: int, cost: tuple[float, ...]) -> None:
    """max((p - 1) (F + B - W), (p - 1) (2B - W) - F) in times of a chunk; less than the published one."""
    times, (f, b, w) = equal_times(p, 2, *cost), cost
    bubble_s = max((p - 1) * (f + b - w), (p - 1) * (2 * b - w) - f)
    span_s = simulate(dualpipe_v.actions(p, 2, m), times).span_s
    assert dualpipe_v.is_exact(m, times)
    assert span_s == pytest.approx(2 * m * sum(cost) + bubble_s, rel=1e-13)
    assert dualpipe_v.closed_form_s(m, times) == pytest.approx(span_s, rel=1e-13)


@pytest.mark.parametrize("cost", [*COSTS, (1.0, 1.5, 0.5)])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 7), (4, 8), (4, 11), (8, 16)])
def test_the_published_bubble_is_that_of_pairs_that_end_together(p: int, m: int, cost: tuple[float, ...]) -> None:
    """(p - 1) (F&B + D - 3W), F&B = F + D, where neither output of a pair leaves before both are done."""
    f, b, w = cost
    span_s = paired_span_s(dualpipe_v.actions(p, 2, m), *cost)
    assert span_s - 2 * m * sum(cost) == pytest.approx((p - 1) * (f + 2 * b - w), rel=1e-12)


@pytest.mark.parametrize(("p", "m"), [(2, 4), (3, 7), (4, 8), (8, 16)])
def test_the_closed_form_is_exact_where_it_says_so(p: int, m: int) -> None:
    """Whatever W <= F <= B; elsewhere it mostly is not."""
    table, missed = dualpipe_v.actions(p, 2, m), 0
    for f, b, w in np.random.default_rng(24).random((300, 3)):
        times = equal_times(p, 2, f, b, w)
        close = simulate(table, times).span_s == pytest.approx(dualpipe_v.closed_form_s(m, times), rel=1e-12)
        assert close or not dualpipe_v.is_exact(m, times)
        missed += not close
    assert missed > 100


@pytest.mark.parametrize(("p", "v", "m"), [(1, 2, 4), (2, 1, 4), (4, 2, 7)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not dualpipe_v.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"dualpipe-v needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        dualpipe_v.actions(p, v, m)

import numpy as np
import pytest

from cost_models.schedules import one_f_one_b
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import SHAPES, equal_times, random_times

RANKS = [1, 2, 3, 4, 6, 8]
MICRO_BATCHES = range(1, 17)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("m", MICRO_BATCHES)
def test_equal_stages_take_m_plus_p_minus_1_micro_batches(p: int, m: int) -> None:
    """The bubble of 1F1B is (p - 1) t; the closed form and the bound are both exact."""
    times = equal_times(p, 1, 1.0, 1.25, 0.5)
    assert simulate(one_f_one_b.actions(p, 1, m), times).span_s == pytest.approx((m + p - 1) * 2.75, rel=1e-13)
    assert one_f_one_b.closed_form_s(m, times) == pytest.approx((m + p - 1) * 2.75, rel=1e-13)
    assert one_f_one_b.lower_bound_s(m, times) == pytest.approx((m + p - 1) * 2.75, rel=1e-13)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("m", MICRO_BATCHES)
def test_equal_stages_with_hops_and_any_edges_are_exact(p: int, m: int) -> None:
    """Hops of any length and first and last work that differs from rank to rank."""
    rng = np.random.default_rng(15)
    whole = np.ones((40, p, 1))
    edges = 8 * rng.random((2, 40, p))
    hop_s = rng.choice([0.0, 0.1, 1.0, 10.0], size=(40, 1)) * np.ones(p)
    times = StageTimes.of(whole, whole, whole / 2, first_s=edges[0], last_s=edges[1], hop_s=hop_s)
    span_s = simulate(one_f_one_b.actions(p, 1, m), times).span_s
    assert np.allclose(one_f_one_b.closed_form_s(m, times), span_s, rtol=1e-12, atol=0)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("m", MICRO_BATCHES)
def test_each_p_micro_batches_pay_the_hops_there_and_back(p: int, m: int) -> None:
    """2 (p - 1) (1 + floor((m - 1) / p)) hops, and 2 more for each micro-batch of the last round but two."""
    extra = [
        float(simulate(one_f_one_b.actions(p, 1, m), equal_times(p, 1, 1.0, 1.5, 0.5, hop=hop)).span_s)
        - 3 * (m + p - 1)
        for hop in (0.25, 16.0)
    ]
    rounds, left = divmod(m - 1, p)
    hops = 2 * (p - 1) * (1 + rounds)
    if left <= 1:
        assert extra == [0.25 * hops, 16.0 * hops]
    hops += 2 * max(0, left - 1)
    assert extra == [0.25 * hops, 16.0 * hops]
    assert one_f_one_b.hops(p, m) == hops
    assert one_f_one_b.lower_bound_s(m, equal_times(p, 1, 1.0, 1.5, 0.5, hop=16)) == 3 * (m + p - 1) + 16 * hops


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["1f1b"])
def test_closed_form_is_an_upper_bound_for_any_stages(p: int, v: int, m: int) -> None:
    """Unequal stages, edges and hops included."""
    times = random_times(np.random.default_rng(16), p, v, batch=1000)
    span_s = simulate(one_f_one_b.actions(p, v, m), times).span_s
    assert np.all(one_f_one_b.closed_form_s(m, times) >= span_s * (1 - 1e-12))


def test_closed_form_without_its_second_term_is_no_upper_bound() -> None:
    """Rank 0 slow forwards and rank 1 slow backwards: warm-up and draining wait for different ranks."""
    times = StageTimes.of([[1.0], [0.0], [0.0]], [[0.0], [1.0], [0.0]], [[0.0]] * 3)
    span_s = simulate(one_f_one_b.actions(3, 1, 2), times).span_s
    assert span_s == one_f_one_b.closed_form_s(2, times) == 4
    assert times.work_s.max() + times.work_s.sum() == 3


def test_each_rank_warms_up_by_its_distance_to_the_last() -> None:
    """Rank i starts with min(m, p - 1 - i) forwards, then alternates."""
    table = one_f_one_b.actions(3, 1, 4)
    orders = ["".join("FB"[action.kind] for action in table.rank_actions(rank)) for rank in range(3)]
    assert orders == ["FFFBFBBB", "FFBFBFBB", "FBFBFBFB"]


@pytest.mark.parametrize(("p", "v", "m"), [(0, 1, 1), (2, 2, 4), (2, 1, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not one_f_one_b.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"1f1b needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        one_f_one_b.actions(p, v, m)


@pytest.mark.parametrize("p", RANKS)
@pytest.mark.parametrize("m", MICRO_BATCHES)
def test_window_paths_are_paths(p: int, m: int) -> None:
    """Chosen for some times, no path is longer than the step with any others: one for each rank that has a loop."""
    rng = np.random.default_rng(21)
    chosen_for = StageTimes.of(*rng.random((3, p, 1)), hop_s=rng.random(p))
    any_times = random_times(rng, p, 1, batch=200)
    span_s = simulate(one_f_one_b.actions(p, 1, m), any_times).span_s
    paths = list(one_f_one_b.window_paths(m, chosen_for).each())
    assert len(paths) == max(0, min(p, m - 1))
    for path in paths:
        assert (path.length_s(any_times) <= span_s * (1 + 1e-12)).all()


@pytest.mark.parametrize(("first", "last"), [(0, 1), (2, 5), (3, 3), (6, 7), (0, 7)])
def test_a_window_of_slow_ranks_is_the_critical_path(first: int, last: int) -> None:
    """Ranks that take a little longer than their neighbours loop all step long, and pay their hops each time."""
    p, m = 8, 65 + first
    work = np.where((np.arange(p) >= first) & (np.arange(p) <= last), 1.0, 0.9)[:, None]
    times = StageTimes.of(work, work, work, hop_s=np.full(p, 0.02))
    span_s = float(simulate(one_f_one_b.actions(p, 1, m), times).span_s)
    lengths = [float(path.length_s(times)) for path in one_f_one_b.window_paths(m, times).each()]
    assert np.argmax(lengths) == first
    assert max(lengths) == pytest.approx(span_s, rel=5e-3)
    assert float(one_f_one_b.lower_bound_s(m, times)) <= max(lengths) * (1 + 1e-12)

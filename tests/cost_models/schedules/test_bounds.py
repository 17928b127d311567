import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.bounds import edge_excess_s, enter_and_return, reach_s
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import ALL, SHAPES, random_times


@pytest.mark.parametrize("name", schedules.NAMES)
def test_no_bound_is_above_the_simulated_step(name: str) -> None:
    """In thousands of random cases with unequal stages, edges and hops; the solver's terms are the weaker bound."""
    schedule, cases = schedules.schedule(name), 0
    for seed, (p, v, m) in enumerate(SHAPES[name]):
        times = random_times(np.random.default_rng(seed), p, v, batch=500)
        span_s = simulate(schedule.actions(p, v, m), times).span_s
        bound_s, terms_s = schedule.lower_bound_s(m, times), schedule.bound_terms(m, times).value_s()
        assert np.all(bound_s <= span_s * (1 + 1e-12))
        assert np.all(terms_s <= bound_s * (1 + 1e-12))
        assert np.all(terms_s > 0)
        cases += len(span_s)
    assert cases >= 3000


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_bounds_are_worth_having(name: str, p: int, v: int, m: int) -> None:
    """With stages within 10 % of each other and short hops the bound is within 12 % of the step, mostly within 4 %."""
    rng = np.random.default_rng(11)
    near = [0.9 + 0.2 * rng.random((200, p, v)) for _ in range(3)]
    times = StageTimes.of(*near, hop_s=0.02)
    ratio = schedules.schedule(name).lower_bound_s(m, times) / simulate(schedules.actions(name, p, v, m), times).span_s
    assert ratio.min() > 0.88
    assert np.median(ratio) > 0.96


def enter_and_return_by_hand(m: int, times: StageTimes) -> float:
    """max over i and k >= i of first_i + last_i + sum_{i<=j<k} pass_j + m t_k, written out."""
    first, last, hop, work = (x.tolist() for x in (times.first_s, times.last_s, times.hop_s, times.work_s))
    chunk = (times.forward_s + times.backward_s)[:, 0].tolist()
    return max(
        first[i] + last[i] + sum(chunk[j] + 2 * hop[j] for j in range(i, k)) + m * work[k]
        for k in range(times.ranks)
        for i in range(k + 1)
    )


@pytest.mark.parametrize(("p", "v"), [(1, 1), (2, 3), (5, 2)])
def test_the_terms_add_up_to_the_worst_path(p: int, v: int) -> None:
    """The recursion over stages is the maximum over all entries and all ranks that work through."""
    rng = np.random.default_rng(12)
    for _ in range(50):
        times = StageTimes.of(*rng.random((3, p, v)), first_s=rng.random(p), last_s=rng.random(p), hop_s=rng.random(p))
        assert enter_and_return(7, times).value_s() == pytest.approx(enter_and_return_by_hand(7, times), rel=1e-13)


@pytest.mark.parametrize("name", schedules.NAMES)
def test_each_assignment_may_have_its_own_number_of_micro_batches(name: str) -> None:
    """Bounds and closed forms take m as a column as well."""
    schedule = schedules.schedule(name)
    v, m = min(v for p, v, _ in SHAPES[name] if p == 4), np.array([8, 12, 16, 32])
    times = random_times(np.random.default_rng(13), 4, v, batch=4)
    terms = schedule.bound_terms(m, times).value_s()
    lower, closed = schedule.lower_bound_s(m, times), schedule.closed_form_s(m, times)
    for row in range(4):
        same = StageTimes(*(getattr(times, field)[row] for field in times.__dataclass_fields__))
        assert terms[row] == schedule.bound_terms(int(m[row]), same).value_s()
        assert lower[row] == schedule.lower_bound_s(int(m[row]), same)
        assert closed[row] == schedule.closed_form_s(int(m[row]), same)


def test_reach_follows_the_first_micro_batch_or_the_edge() -> None:
    """A rank starts when micro-batch 0 arrives or its own first work is done."""
    reach = reach_s(np.array([1.0, 2.0, 3.0]), np.array([0.0, 5.0, 6.0]), np.array([0.5, 0.5, 9.0]))
    assert [float(seconds) for seconds in reach] == [0.0, 5.0, 7.5]


def test_edges_count_only_where_they_outlast_the_way() -> None:
    """First work is hidden while micro-batch 0 is still on its way to the rank."""
    way, hop = np.array([1.0, 1.0, 1.0]), np.array([0.5, 0.5, 0.5])
    assert edge_excess_s(way, np.array([0.0, 1.5, 3.0]), hop) == 0.0
    assert edge_excess_s(way, np.array([0.0, 2.0, 3.25]), hop) == 0.5

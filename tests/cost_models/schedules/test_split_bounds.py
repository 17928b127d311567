import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.simulate import simulate
from cost_models.schedules.split_bounds import enter_and_stay
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import COSTS, SHAPES, equal_times, random_times

SPLIT = ["zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v"]
MEAN_SLACK = {
    "zb-h1": 0.05,
    "zb-h2": 0.06,
    "zb-v": 0.10,
    "v-half": 0.09,
    "v-min": 0.08,
    "dualpipe": 0.12,
    "dualpipe-v": 0.11,
}
"""Most that a bound may lie below the step on average, as a share of it, with very uneven stages, edges and hops."""


@pytest.mark.parametrize("name", SPLIT)
def test_the_mean_slack_of_the_bound(name: str) -> None:
    """At least 3000 random cases; printed, so that a change of the bounds can be judged."""
    schedule, slacks = schedules.schedule(name), []
    for seed, (p, v, m) in enumerate(SHAPES[name]):
        times = random_times(np.random.default_rng(seed), p, v, batch=500)
        slacks.append(1 - schedule.lower_bound_s(m, times) / simulate(schedule.actions(p, v, m), times).span_s)
    slack = np.concatenate(slacks)
    print(f"{name}: mean slack {slack.mean():.1%} of {slack.size} cases")
    assert slack.size >= 3000
    assert slack.min() >= -1e-12
    assert slack.mean() < MEAN_SLACK[name]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("name", SPLIT)
def test_the_bound_is_exact_for_equal_ranks(name: str, cost: tuple[float, ...]) -> None:
    """The critical path of equal ranks is one of its paths."""
    for p, v, m in SHAPES[name]:
        times = equal_times(p, v, *cost)
        span_s = simulate(schedules.actions(name, p, v, m), times).span_s
        assert schedules.schedule(name).lower_bound_s(m, times) == pytest.approx(span_s, rel=1e-12)


@pytest.mark.parametrize("name", SPLIT)
def test_long_edges_are_in_the_bound(name: str) -> None:
    """First or last work of ten steps on any one rank: the bound is within a tenth of the step."""
    p, v, m = SHAPES[name][-1]
    for rank in range(p):
        edge = 10 * 6 * m * v * np.eye(p)[rank]
        for edges in ({"first_s": edge}, {"last_s": edge}):
            cells = np.ones((3, p, v))
            times = StageTimes.of(*cells, **edges, hop_s=0.1)
            span_s = simulate(schedules.actions(name, p, v, m), times).span_s
            assert schedules.schedule(name).lower_bound_s(m, times) > 0.9 * span_s


def test_the_terms_add_up_to_the_worst_path() -> None:
    """max over i and k >= i of first_i + sum_{i<=j<k} (F_j + hop_j) + m t_k + last_k, written out."""
    rng = np.random.default_rng(26)
    for _ in range(50):
        times = StageTimes.of(*rng.random((3, 4, 2)), first_s=rng.random(4), last_s=rng.random(4), hop_s=rng.random(4))
        way = (times.forward_s[:, 0] + times.hop_s).tolist()
        stay = (5 * times.work_s + times.last_s).tolist()
        worst = max(times.first_s[i] + sum(way[i:k]) + stay[k] for k in range(4) for i in range(k + 1))
        assert enter_and_stay(5, times).value_s() == pytest.approx(worst, rel=1e-13)

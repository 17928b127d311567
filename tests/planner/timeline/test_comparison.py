from dataclasses import replace

import numpy as np
import pytest

from cost_models.schedules.simulate import run_times
from planner.timeline.comparison import TOLERANCE, compared
from planner.timeline.measured import Measured
from planner.timeline.perturbation import Perturbation, slowed
from planner.timeline.step import Step, replayed
from tests.planner.timeline.cases import plan_timeline, two_ranks


def measured(step: Step, *, offset_s: bool = False, without: tuple[int, ...] = ()) -> Measured:
    """A step as a trace would tell it: each rank on its own clock, some ranks missing."""
    clock = 100.0 * step.rank if offset_s else 0.0
    missing = np.isin(step.rank, without)
    return Measured(*(np.where(missing, np.nan, times + clock) for times in (step.start_s, step.end_s)), unknown=0)


def slower(step: Step, rank: int, factor: float) -> Step:
    """The step with a slow rank."""
    return replayed(step.table, slowed(step.times, [Perturbation(rank, factor)]), step.global_s)


def test_a_step_as_predicted_deviates_nowhere() -> None:
    """Whatever the clocks say."""
    step = plan_timeline().step
    for clocks in (False, True):
        found = compared(step, measured(step, offset_s=clocks))
        assert found.first is None
        assert not found.slowest_deviates
        assert found.rank_ratio == pytest.approx(1)
        assert (found.forward_ratio, found.backward_ratio) == pytest.approx((1, 1))
        assert found.measured_span_s == pytest.approx(found.predicted_span_s)
        assert found.actions == step.table.actions


@pytest.mark.parametrize("rank", range(4))
def test_a_slow_rank_is_named_with_its_first_action(rank: int) -> None:
    """Ranks that wait for it are late, but they are not the cause."""
    step = plan_timeline().step
    found = compared(step, measured(slower(step, rank, 1.2), offset_s=True))
    assert found.slowest_rank == rank
    assert found.slowest_deviates
    assert found.rank_ratio[rank] == pytest.approx(1.2)
    assert found.first is not None
    assert (found.first.rank, found.first.action, found.first.what) == (rank, "forward m0 c0", "duration")
    assert found.first.measured_duration_s == pytest.approx(1.2 * found.first.predicted_duration_s)


def test_what_the_model_misjudges_everywhere_is_no_deviation() -> None:
    """Forwards that take half as long again and backwards twice as long on all ranks are told as such."""
    step = plan_timeline().step
    times = replace(
        step.times,
        forward_s=1.5 * step.times.forward_s,
        input_grad_s=2 * step.times.input_grad_s,
        weight_grad_s=2 * step.times.weight_grad_s,
    )
    found = compared(step, measured(replayed(step.table, times)))
    assert (found.forward_ratio, found.backward_ratio) == pytest.approx((1.5, 2))
    assert found.first is None
    assert not found.slowest_deviates


def test_a_late_start_is_named_where_nothing_lasts_longer() -> None:
    """A rank that pauses between two actions, as for a checkpoint: the action after the pause."""
    step = two_ranks()
    trace = measured(step)
    late = np.flatnonzero((step.rank == 1) & (step.start_s >= 4))
    trace.start_s[late] += 0.5
    trace.end_s[late] += 0.5
    first = compared(step, trace).first
    assert first is not None
    assert (first.rank, first.action, first.what) == (1, "forward m1", "start")
    assert first.measured_start_s - first.predicted_start_s == pytest.approx(0.5)
    assert first.measured_duration_s == first.predicted_duration_s == 1


def test_missing_ranks_are_told_and_the_others_compared() -> None:
    """Of two ranks that are left the faster sets the scale."""
    step = plan_timeline().step
    found = compared(step, measured(slower(step, 3, 1.2), without=(0, 2)))
    assert found.missing_ranks == (0, 2)
    assert np.isnan(found.rank_ratio[[0, 2]]).all()
    assert found.slowest_rank == 3
    assert found.first is not None
    assert found.first.rank == 3


def test_small_deviations_are_noise() -> None:
    """Under the tolerance nothing is named, over it something is."""
    step = two_ranks()
    for factor, named in ((1 + 0.9 * TOLERANCE, False), (1 + 1.1 * TOLERANCE, True)):
        found = compared(step, measured(slower(step, 1, factor)))
        assert (found.first is not None) == found.slowest_deviates == named


def test_small_deviations_do_not_add_up_to_one() -> None:
    """Ranks that are a little slower make others wait; nobody is late for a reason of its own."""
    step = plan_timeline().step
    jitter = 1 + 0.08 * np.random.default_rng(0).random(step.table.actions)
    start_s, end_s = run_times(step.table, step.times, step.duration_s * jitter)
    assert compared(step, Measured(start_s, end_s, unknown=0)).first is None


def test_one_recorded_action_can_be_compared() -> None:
    """A trace that was cut short after the first forward."""
    step = two_ranks()
    trace = measured(step)
    trace.start_s[1:] = trace.end_s[1:] = np.nan
    found = compared(step, trace)
    assert found.actions == 1
    assert found.missing_ranks == (1,)
    assert found.first is None

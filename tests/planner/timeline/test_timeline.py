import pytest

from planner.errors import RequestError
from planner.fixed import planned
from planner.timeline.timeline import timeline_of, timeline_of_plan
from tests.planner.timeline.cases import GOLDEN, plan, plan_timeline


@pytest.mark.parametrize("name", GOLDEN)
def test_a_plan_is_replayed_to_its_step_time_of_record(name: str) -> None:
    """The timeline ends when the search says that the step does."""
    candidate = planned(plan(name))
    assert timeline_of(candidate).step.step_s == pytest.approx(candidate.objective_s, rel=1e-12)


def test_a_timeline_has_a_curve_a_rank_and_the_memory_of_a_gpu() -> None:
    """What the report divides by."""
    timeline = plan_timeline()
    assert len(timeline.memory) == len(timeline.predicted_bytes) == timeline.step.ranks == 4
    assert timeline.capacity_bytes == pytest.approx(plan().predicted.peak_memory_bytes.capacity)


def test_a_schedule_that_is_not_known_is_refused() -> None:
    """The message lists those that are."""
    document = plan()
    other = document.parallelism.model_copy(update={"schedule": "zigzag"})
    with pytest.raises(RequestError, match="schedule must be one of 1f1b, .*, got 'zigzag'"):
        timeline_of_plan(document.model_copy(update={"parallelism": other}))


def test_a_schedule_that_cannot_run_the_layout_is_refused() -> None:
    """1F1B has one chunk a rank: the document says seven."""
    document = plan()
    other = document.parallelism.model_copy(update={"schedule": "1f1b"})
    with pytest.raises(RequestError, match="'1f1b' cannot be replayed: 1f1b needs .* one chunk a rank"):
        timeline_of_plan(document.model_copy(update={"parallelism": other}))

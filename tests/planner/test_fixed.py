"""A configuration costed as it stands: what the search found, found again without a search."""

import numpy as np
import pytest

from planner.document import PlanDocument, read
from planner.errors import RequestError
from planner.fixed import layout_of, planned, request_of, zero_mode
from planner.request import SEARCHED, build_request
from planner.search import plan
from planner.timeline.timeline import timeline_of_plan
from tests.golden.jobs import JOBS

KINDS = {
    "context and experts": dict(model="qwen3-30b-a3b", gpus=32, mem="80GB", seq_len="32k", global_batch=32),
    "offload": dict(model="llama3-8b", gpus=2, mem="40GB", global_batch=8),
    "windows": dict(model="gemma2-2b", gpus=8, mem="80GB", global_batch=64, schedule="interleaved"),
}


@pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
def test_a_golden_plan_costs_what_its_document_says(job):
    """The step, and every stage's bytes, of a kept plan are those of a costing without search."""
    _agrees(read(job.path))


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_plan_costs_what_its_document_says(kind):
    """The same for plans with experts, split context, offload, windows and several chunks."""
    _agrees(plan(build_request(**KINDS[kind])))


@pytest.mark.parametrize("schedule", ["zb-h2", "zb-v", "v-half", "dualpipe-v", "breadth-first", "flexible"])
def test_a_plan_of_any_schedule_costs_what_its_document_says(schedule):
    """The same for split backwards, chunks that come back to rank 0 and groups of other sizes; and for their curves."""
    document = plan(build_request("llama3-8b", 8, "80GB", global_batch=28, schedule=schedule, gap=0.02))
    assert schedule in (document.parallelism.schedule, "flexible")
    _agrees(document)
    timeline = timeline_of_plan(document)
    assert timeline.step.step_s == pytest.approx(document.predicted.step_time_s, rel=1e-8)
    peaks = np.array([curve.peak_bytes for curve in timeline.memory])
    assert np.all(peaks <= timeline.predicted_bytes * (1 + 1e-9))
    assert np.all(peaks >= timeline.predicted_bytes * 0.96)
    assert schedule == "flexible" or request_of(document).schedules == (schedule,)


def test_groups_of_the_usual_size_and_others_are_told_apart():
    """As many micro-batches as ranks are what every search has; others are asked for, and are in the layout."""
    usual = read(next(job for job in JOBS if job.name == "llama3-70b_256").path).parallelism
    assert (usual.schedule, usual.group_size) == ("interleaved", usual.pp)
    assert layout_of(usual)["group_size"] == 0
    assert layout_of(usual.replaced(group_size=usual.pp + 2))["group_size"] == usual.pp + 2
    document = read(next(job for job in JOBS if job.name == "llama3-70b_256").path)
    other = document.model_copy(update={"parallelism": usual.replaced(group_size=usual.pp + 2)})
    assert request_of(document).schedules == SEARCHED
    assert request_of(other).schedules == ("flexible",)


def _agrees(document: PlanDocument) -> None:
    candidate = planned(document)
    assert candidate.objective_s == pytest.approx(document.predicted.step_time_s, rel=1e-8)
    chosen = candidate.pipeline.chosen(candidate.choice)
    expected = [stage.predicted.device_bytes for stage in document.stages]
    assert chosen["device_bytes"] == pytest.approx(expected, rel=1e-8)


def test_resharding_is_known_at_stage_three_only():
    """Each ZeRO stage is one mode, stage 3 two; resharding is ignored where weights are whole anyway."""
    assert [zero_mode(stage, False) for stage in range(4)] == [0, 1, 2, 3]
    assert zero_mode(3, True) == 4
    assert zero_mode(1, True) == 1


def test_a_split_that_the_search_does_not_know_is_refused():
    """Chunks that are not split as evenly as they go: the message names them and what is expected."""
    document = read(next(job for job in JOBS if job.name == "llama3-70b_256").path)
    stage = document.stages[1]
    first, second, *rest = stage.chunks
    moved = stage.model_copy(
        update={"chunks": (first.replaced(layers=first.layers + 1), second.replaced(layers=second.layers - 1), *rest)}
    )
    with pytest.raises(RequestError, match=r"stages\[1\].chunks must hold"):
        planned(document.model_copy(update={"stages": (document.stages[0], moved, *document.stages[2:])}))

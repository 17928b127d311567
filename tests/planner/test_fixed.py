"""A configuration costed as it stands: what the search found, found again without a search."""

import pytest

from planner.document import PlanDocument, read
from planner.errors import RequestError
from planner.fixed import planned, zero_mode
from planner.request import build_request
from planner.search import plan
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

"""Configurations as people write them: read, completed, costed and written again."""

import pytest

from cost_models.specs.errors import SpecError
from planner.errors import RequestError
from planner.fixed import planned
from planner.hosts import HOST_FRACTION
from planner.proposal import Proposal, of_document, of_text
from planner.request import PlanRequest, build_request
from planner.search import plan


def job(**changes: object) -> PlanRequest:
    """70B on four nodes."""
    flags = {"model": "llama3-70b", "gpus": 32, "mem": "80GB", "seq_len": "4k", "global_batch": 64} | changes
    return build_request(**flags)  # type: ignore[arg-type]


def test_what_is_not_given_is_completed_and_said() -> None:
    """dp from the GPUs, micro-batches from the batch, the schedule from vpp, ZeRO from the recipe, layers evenly."""
    found = of_text("tp=4,pp=4,vpp=2", job())
    layout = found.layout
    assert (layout["dp"], layout["num_microbatches"], layout["sequence_parallel"]) == (2, 32, 1)
    assert found.schedule == "interleaved"
    assert [stage.layers for stage in found.stages] == [20] * 4
    assert found.notes == (
        "dp is not given: 2, what tp*cp*pp = 16 leaves of 32 GPUs.",
        "zero_stage is not given: 1, as the megatron recipe has it.",
    )
    assert found.illegal == found.inexpressible == ()


@pytest.mark.parametrize(
    "text",
    [
        "tp=4",
        "tp=8,pp=4,vpp=5,recompute=norm+activation",
        "tp=4,pp=3,stage_layers=26+27+27,recompute=full,recompute_layers_per_chunk=5",
        "tp=4,cp=2,cp_type=ring,zero_stage=3,reshard_after_forward=false",
        "tp=8,pp=2,dp_shard=1,dp_replicate=2,rank_order=tp-cp-ep-pp-dp,micro_batch_size=2",
        "tp=8,offload_optimizer=0.5,offload_activations=0.25,zero_stage=2",
        "tp=8,pp=4,schedule=zb-h1,sequence_parallel=false",
        "tp=4,pp=2,dp=2",
    ],
)
def test_a_configuration_written_down_is_read_as_itself(text: str) -> None:
    """The text has what the others do not say, and gives the same layout and stages."""
    found = of_text(text, job())
    assert _same(of_text(found.text, job()), found)
    assert len(found.text.split(",")) <= len(text.split(",")) + 1


def _same(first: Proposal, second: Proposal) -> bool:
    return (first.layout, first.stages) == (second.layout, second.stages)


@pytest.mark.parametrize(
    ("short", "whole"),
    [
        ("cp=4,cp_heads=4", "cp=4,cp_type=ulysses"),
        ("cp=4,cp_heads=2", "cp=4,cp_type=hierarchical,cp_heads=2"),
        ("cp=4", "cp=4,cp_type=all_gather,cp_heads=1"),
    ],
)
def test_the_kind_of_context_parallelism_follows_from_its_heads(short: str, whole: str) -> None:
    """Neighbours that trade sequence for heads: none, all of them, some."""
    assert _same(of_text(short, job()), of_text(whole, job()))


def test_a_plan_is_the_configuration_that_it_was() -> None:
    """Its step and its memory are the plan's; its document is of it alone."""
    request = build_request("llama3-8b", 8, "80GB", seq_len="4k", global_batch=64)
    document = plan(request)
    found = of_document(document, request)
    assert found.figures.step_time_s == pytest.approx(document.predicted.step_time_s, rel=1e-9)
    assert found.figures.device_bytes == pytest.approx(document.predicted.peak_memory_bytes.device, rel=1e-9)
    assert found.figures.fits
    assert found.document.stages == document.stages
    assert (found.document.certificate.layouts, found.document.certificate.gap) == (1, 0.0)
    assert planned(found.document).objective_s == pytest.approx(found.figures.step_time_s, rel=1e-8)


def test_stages_of_a_node_share_its_memory() -> None:
    """The host memory of a node is the sum over the stages that have GPUs there, as the document has it."""
    text = "pp=2,stage_layers=8+24,offload_optimizer=1.0"
    request = build_request("llama3-8b", 8, "80GB", seq_len="4k", global_batch=64)
    found = of_text(text, request)
    of_stages = [stage.predicted.host_bytes for stage in found.document.stages]
    assert of_stages[1] > 1.5 * of_stages[0] > 0.0
    assert found.figures.host_bytes == pytest.approx(4 * sum(of_stages), rel=1e-8)
    assert found.figures.host_bytes == pytest.approx(found.document.predicted.host_memory_bytes, rel=1e-8)
    for fraction, fits in ((1.001, True), (0.999, False)):  # both less than eight times what the fuller stage takes
        size = int(fraction * found.figures.host_bytes / HOST_FRACTION)
        small = request.replaced(cluster=request.cluster.replaced(host_memory_bytes=size))
        assert of_text(text, small).figures.host_fits == fits


def test_recompute_that_frees_nothing_is_said() -> None:
    """Attention's scores are not kept by flash attention."""
    found = of_text("tp=8,recompute=core_attention+activation", job())
    assert found.notes[-1] == "Recomputing core_attention frees nothing of this model under this recipe."
    assert _same(found, of_text("tp=8,recompute=activation", job()))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tpp=2", "unknown field 'tpp' in check; did you mean 'tp'"),
        ("tp=0", "check.tp must be >= 1, got 0"),
        ("tp", "check must be field=value pairs such as tp=8,pp=2, got 'tp'"),
        ("tp=2,tp=4", "check gives tp twice: 2 and 4"),
        ("schedule=1f", "check.schedule must be"),
        ("recompute=half", "check.recompute must be none or some of norm, .*got 'half'"),
        ("recompute=activation+mlp", "check.recompute must be none or one of"),
        ("pp=4,stage_layers=20+20", r"stage_layers must have pp = 4 numbers, got 20\+20"),
        ("pp=2,stage_layers=a+b", r"stage_layers must be whole numbers joined by \+ .*got a\+b"),
        ("cp=4,cp_type=ulysses,cp_heads=2", "cp_heads must be 4 for cp_type ulysses with cp 4, got 2"),
        ("cp=4,cp_type=all_gather,cp_heads=4", "cp_heads must be 1 for cp_type all_gather"),
        ("cp=2,cp_type=hierarchical", r"cp_heads must be above 1 and below cp \(2\) for cp_type hierarchical, got 2"),
        ("tp=4,zero_stage=1,reshard_after_forward=false", "false under zero_stage 3 alone, got zero_stage 1"),
        ("tp=4,recompute_layers_per_chunk=3", r"needs what is recomputed there \(recompute=full\), got 3"),
        ("offload_optimizer=2", "check.offload_optimizer must be <= 1, got 2"),
    ],
)
def test_what_cannot_be_read_is_refused_by_name(text: str, message: str) -> None:
    """The field, the value, what is allowed."""
    with pytest.raises((RequestError, SpecError), match=message):
        of_text(text, job())


def test_layers_are_whole_groups() -> None:
    """A model whose layers come in pairs is dealt in pairs."""
    with pytest.raises(RequestError, match="must be whole groups of 2 layers"):
        of_text("pp=2,stage_layers=13+13", build_request("gemma2-2b", 8, "80GB"))

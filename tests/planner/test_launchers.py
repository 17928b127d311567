"""What launchers say to plan documents: the rules that forbid them, the stage, and the fields that nobody has."""

from typing import Any

import pytest

from planner.document import Chunk, Offload, PlanDocument, Recompute, Stage
from planner.document.honoured import faults
from planner.document.job import job_of
from planner.launchers import answers, inexpressible_fields, refusals
from planner.rules import LAUNCHERS
from tests.planner.sample import CHUNK_LAYERS, PP, VPP, sample_document

LAYERS = VPP * CHUNK_LAYERS
FULL = Recompute(set=("full",), layers=LAYERS)


def alike(recompute: Recompute = FULL, **changes: Any) -> PlanDocument:
    """The sample with stages that all choose the same."""
    document = sample_document()
    changes = {"recompute": recompute, **changes}
    return document.replaced(stages=tuple(stage.replaced(**changes) for stage in document.stages))


def with_layout(document: PlanDocument, **changes: Any) -> PlanDocument:
    """The document with other values of its layout."""
    return document.replaced(parallelism=document.parallelism.replaced(**changes))


def ids(document: PlanDocument, launcher: str) -> set[str]:
    """The rules of a launcher that the document breaks, without the launcher's name."""
    return {each.id.removeprefix(launcher + "-") for each in refusals(document, launcher)}


def test_a_plan_whose_stages_differ_is_refused_with_the_rule_the_field_and_the_stage() -> None:
    """The sample recomputes attention on ten layers of two stages: Megatron names both rules, in order."""
    first, second = refusals(sample_document(), "megatron")
    assert (first.id, first.field) == ("megatron-recomputes-modules-in-every-layer", "recompute")
    assert first.message == "stages[0]: selective recompute must cover all 20 layers of a stage, got 10"
    assert (second.id, second.field) == ("megatron-has-one-recompute", "recompute")
    assert (
        second.text == "what is recomputed must be the same on all stages, got 2 different (megatron-has-one-recompute)"
    )


def test_plans_that_launchers_know_are_expressible() -> None:
    """Full recompute on all stages: Megatron under ZeRO-1, torchtitan under ZeRO-3."""
    assert ids(alike(), "megatron") == ids(alike(), "bridge") == set()
    assert ids(alike(), "torchtitan") == {"shards-everything-or-nothing"}
    assert ids(alike(zero_stage=3, reshard_after_forward=True), "torchtitan") == set()
    assert ids(alike(zero_stage=3, reshard_after_forward=True), "automodel") == set()
    assert ids(alike(zero_stage=3), "megatron") == {"keeps-gathered-weights-with-fsdp2"}


@pytest.mark.parametrize(
    ("document", "launcher", "broken"),
    [
        (with_layout(alike(), schedule="dualpipe", group_size=0), "megatron", {"runs-schedule"}),
        (with_layout(alike(), rank_order="tp-cp-ep-pp-dp"), "torchtitan", {"has-one-rank-order"}),
        (with_layout(alike(), dp_shard=8, dp_replicate=2), "nanotron", {"has-one-shard-group", "runs-schedule"}),
        (alike(Recompute(set=("norm",), layers=LAYERS)), "nanotron", {"recomputes-all-or-nothing", "runs-schedule"}),
        (alike(Recompute(set=("norm", "activation"), layers=LAYERS)), "bridge", {"recomputes-activation-of-experts"}),
        (alike(Recompute(set=("norm", "full"), layers=LAYERS)), "megatron", {"recomputes-full-or-selective"}),
        (alike(offload=Offload(optimizer=0.25)), "automodel", {"offloads-states-together"}),
        (alike(offload=Offload(activations=0.5)), "megatron", {"offloads-activations-of-layers"}),
        (
            alike(zero_stage=2),
            "deepspeed",
            {"pipelines-keep-gradients-whole", "runs-schedule", "has-no-sequence-parallel"},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_launcher_cannot_express_is_named(document: PlanDocument, launcher: str, broken: set[str]) -> None:
    """Exactly these rules, beside how a launcher shards."""
    sharding = {"shards-everything-or-nothing"}
    assert ids(document, launcher) - sharding == broken - sharding


def uneven(counts: list[int], recomputed: list[int]) -> PlanDocument:
    """The sample without interleaving: stages of so many layers, so many of them recomputed in full."""
    document = sample_document()
    starts = [sum(counts[:index]) for index in range(PP)]
    stages: list[Stage] = []
    for stage, start, layers, again in zip(document.stages, starts, counts, recomputed, strict=True):
        recompute = Recompute(set=("full",), layers=again) if again else Recompute()
        chunks = (Chunk(first_layer=start, layers=layers),)
        stages.append(stage.replaced(chunks=chunks, layers=layers, recompute=recompute))
    layout = document.parallelism.replaced(vpp=1, schedule="1f1b", group_size=0)
    return document.replaced(parallelism=layout, stages=tuple(stages))


@pytest.mark.parametrize(
    ("recomputed", "alike"),
    [
        ([19, 20, 21, 20], True),
        ([7, 7, 7, 7], True),
        ([19, 20, 20, 20], True),
        ([0, 0, 0, 0], True),
        ([7, 7, 8, 7], False),
        ([7, 7, 7, 0], False),
        ([18, 20, 21, 20], False),
    ],
)
def test_stages_recompute_alike_when_one_count_a_chunk_gives_all_their_numbers(
    recomputed: list[int], alike: bool
) -> None:
    """Megatron has one --recompute-num-layers: every layer, or as many of each chunk as it has up to that number."""
    document = uneven([19, 20, 21, 20], recomputed)
    assert ("has-one-recompute" not in ids(document, "megatron")) == alike
    assert "splits-layers-evenly" in ids(document, "nanotron")


def test_every_launcher_answers_and_our_runtime_last() -> None:
    """Yes with the plan's own time, no with one line for each rule and no time before it was searched."""
    document = alike()
    told = answers(document)
    assert list(told) == [*(launcher.name for launcher in LAUNCHERS), "runtime"]
    assert told["runtime"].expressible
    assert told["megatron"].best_step_time_s == told["runtime"].best_step_time_s == document.predicted.step_time_s
    assert not told["accelerate"].expressible
    assert told["accelerate"].best_step_time_s is None
    assert told["accelerate"].why_not[0] == "pp must be 1, got 4 (accelerate-has-no-pipelines)"
    assert len(told["accelerate"].why_not) == len(refusals(document, "accelerate"))


def test_our_runtime_says_what_it_does_not_run() -> None:
    """What `plan run` would refuse before it starts, with its words."""
    document = alike()
    quantized = document.replaced(workload=document.workload.replaced(optimizer="adamw-8bit"))
    told = answers(quantized)["runtime"]
    assert not told.expressible
    assert told.best_step_time_s is None
    assert told.why_not == faults(job_of(quantized))
    assert told.why_not == ("workload.optimizer must be adamw to run here, got adamw-8bit",)


def test_fields_that_no_launcher_can_express_are_those_that_all_refuse() -> None:
    """Recompute that differs between stages; nothing where one launcher has the plan."""
    assert inexpressible_fields(sample_document()) == ("recompute",)
    assert inexpressible_fields(alike()) == ()
    differing = tuple(
        stage.replaced(recompute=FULL, offload=Offload(optimizer=0.5 * (rank % 2)))
        for rank, stage in enumerate(sample_document().stages)
    )
    assert inexpressible_fields(sample_document().replaced(stages=differing)) == ("offload",)

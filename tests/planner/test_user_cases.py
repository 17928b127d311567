"""Configurations that users of launchers had trouble with, as they reported them: each is refused by the right rule."""

from typing import Any

import pytest

from cost_models.specs.errors import SpecError
from cost_models.specs.parameters import padded_vocab
from planner.document import Chunk, Stage
from planner.rules import SCHEDULES, legal, refusals, violations
from tests.planner.sample import sample_document
from tests.planner.test_launcher_rules import FULL, GOOD, HALF

INTERLEAVED, ONE_F_ONE_B = SCHEDULES.index("interleaved"), SCHEDULES.index("1f1b")


def told(values: dict[str, Any], *ids: str) -> dict[str, str]:
    """Messages of the legal rules that the values break, by id."""
    return dict(violations(values, *ids))


def test_interleaving_with_fewer_micro_batches_than_stages() -> None:
    """PP 6 with 3 micro-batches, which Megatron refused with an empty range: a multiple of pp is asked for."""
    values = {"pp": 6, "vpp": 2, "num_microbatches": 3, "schedule": INTERLEAVED}
    broken = told(values, "interleaving-needs-whole-groups", "interleaving-needs-pipeline")
    assert broken == {
        "interleaving-needs-whole-groups": "num_microbatches must be a multiple of pp (6) for interleaved 1F1B, got 3"
    }


@pytest.mark.parametrize(
    ("launcher", "rule", "least"), [("torchtitan", "fills-1f1b", 8), ("nanotron", "fills-pipeline", 7)]
)
def test_1f1b_with_fewer_micro_batches_than_stages(launcher: str, rule: str, least: int) -> None:
    """PP 8 with one micro-batch hangs in torchtitan and fails an assertion in nanotron, which asks for pp-1."""
    values = {**GOOD, "pp": 8, "stage_layers": 4, "schedule": ONE_F_ONE_B}
    broken = dict(refusals({**values, "num_microbatches": 1}, launcher))
    assert "got 1" in broken[f"{launcher}-{rule}"]
    assert f"{launcher}-{rule}" not in dict(refusals({**values, "num_microbatches": least}, launcher))
    assert f"{launcher}-{rule}" in dict(refusals({**values, "num_microbatches": least - 1}, launcher))


@pytest.mark.parametrize(
    ("batch", "size", "dp", "near"),
    [(1, 1, 2, "1, or global_batch 2"), (256, 2, 7, "8 or 16, or global_batch 252 or 266")],
)
def test_batches_that_do_not_divide(batch: int, size: int, dp: int, near: str) -> None:
    """GBS 1 on DP 2; GBS 256 on 7 GPUs, where 18 accumulation steps of 2 make 252: the nearest batches are named."""
    broken = told({"global_batch": batch, "micro_batch_size": size, "dp": dp}, "batch-divides")
    assert broken["batch-divides"].endswith(f"got {dp}*{size}; nearest: {near}")


@pytest.mark.parametrize(
    ("seq_len", "cp", "tp", "sharded", "fine"),
    [
        (50_016, 4, 4, 1, True),
        (50_016, 4, 8, 1, True),
        (50_016, 8, 4, 1, True),
        (50_016, 16, 4, 1, False),
        (50_008, 4, 4, 1, False),
        (50_008, 4, 4, 0, True),
        (32, 4, 8, 1, True),
        (96, 4, 8, 1, True),
        (16, 4, 8, 1, False),
        (8, 4, 8, 1, False),
        (8, 4, 8, 0, True),
        (12, 4, 8, 0, False),
    ],
)
def test_sequences_under_context_and_sequence_parallelism(
    seq_len: int, cp: int, tp: int, sharded: int, fine: bool
) -> None:
    """A multiple of cp*lcm(2, tp) with sequence parallelism (32 for CP 4 TP 8, not 64), of 2*cp without."""
    values = {"seq_len": seq_len, "cp": cp, "tp": tp, "sequence_parallel": sharded}
    assert bool(legal(values, "cp-splits-sequence")) == fine


@pytest.mark.parametrize(
    ("vocab", "tp", "padded"),
    [(151_669, 4, 152_064), (250_682, 8, 250_880), (50_257, 1, 50_304), (151_552, 6, 152_064), (50_257, 5, 50_560)],
)
def test_vocabularies_that_tp_does_not_divide(vocab: int, tp: int, padded: int) -> None:
    """Megatron pads to a multiple of 128*tp, which memory and logits count; launchers that do not pad refuse."""
    assert padded_vocab(vocab, 128, tp) == padded
    for launcher in ("torchtitan", "deepspeed", "accelerate", "trainer", "automodel", "axolotl", "maxtext"):
        broken = dict(refusals({**GOOD, "tp": tp, "vocab": vocab}, launcher))
        assert (f"{launcher}-tp-divides-vocabulary" in broken) == (tp > 1)
    for launcher in ("megatron", "bridge", "nanotron"):
        assert not any("vocab" in rule for rule, _ in refusals({**GOOD, "tp": tp, "vocab": vocab}, launcher))


@pytest.mark.parametrize(
    ("degrees", "gpus"),
    [
        ({"tp": 2, "cp": 1, "pp": 6, "ep": 8, "etp": 1, "dp": 2}, 48),
        ({"tp": 4, "cp": 1, "pp": 8, "ep": 8, "etp": 4, "dp": 4}, 256),
        ({"tp": 1, "cp": 1, "pp": 2, "ep": 2, "etp": 1, "dp": 1}, 4),
    ],
)
def test_experts_that_no_stage_can_hold(degrees: dict[str, int], gpus: int) -> None:
    """TP 2 PP 6 EP 8 on 32 GPUs, ETP left at TP 4 on 128, EP 2 PP 2 on 2: the message has the least GPUs."""
    broken = told(degrees, "experts-fill-stage")
    assert f"need a multiple of {gpus} GPUs" in broken["experts-fill-stage"]
    enough = {**degrees, "dp": gpus // (degrees["tp"] * degrees["cp"] * degrees["pp"])}
    assert told(enough, "experts-fill-stage") == {}


def test_experts_of_one_slice_fit_where_sliced_ones_do_not() -> None:
    """TP 4 PP 8 EP 8 with ETP 1 fills 64 GPUs."""
    degrees = {"tp": 4, "cp": 1, "pp": 8, "ep": 8, "etp": 1, "dp": 2}
    assert told(degrees, "experts-fill-stage") == {}
    assert "multiple of 64 GPUs" in told({**degrees, "dp": 1}, "experts-fill-stage")["experts-fill-stage"]


def test_experts_and_heads_on_three_gpus() -> None:
    """256 experts and 64 heads on 3 GPUs: both rules speak, with the nearest degrees."""
    broken = told({"experts": 256, "ep": 3, "heads": 64, "tp": 3}, "ep-divides-experts", "tp-divides-heads")
    assert broken == {
        "ep-divides-experts": "ep must divide experts (256), got 3; nearest: 2 or 4",
        "tp-divides-heads": "tp must divide heads (64), got 3; nearest: 2 or 4",
    }


@pytest.mark.parametrize("zero_stage", [2, 3])
def test_pipelines_with_sharded_gradients(zero_stage: int) -> None:
    """DeepSpeed refuses ZeRO-2 and -3 in a pipeline, Megatron's FSDP2 refuses any, torchtitan runs FSDP2 there."""
    values = {**GOOD, **HALF, "zero_stage": zero_stage, "reshard": 0}
    assert "deepspeed-pipelines-keep-gradients-whole" in dict(refusals(values, "deepspeed"))
    assert ("megatron-keeps-gathered-weights-with-fsdp2" in dict(refusals(values, "megatron"))) == (zero_stage == 3)
    if zero_stage == 3:
        assert refusals(values, "torchtitan") == []


def test_layers_that_would_be_dropped() -> None:
    """40 layers, PP 8, two virtual stages of 2: old Megatron trained 32 of them, no plan document can say that."""
    document = sample_document()
    layout = document.parallelism.replaced(
        tp=1, pp=8, vpp=2, dp=32, dp_shard=32, num_microbatches=16, group_size=8, gpus_used=256
    )
    stages = tuple(_stage(document.stages[0], rank) for rank in range(8))
    with pytest.raises(SpecError, match=r"layers of all stages must add up to model.layers = 40, got 32"):
        document.replaced(model=document.model.replaced(layers=40), parallelism=layout, stages=stages)


def _stage(like: Stage, rank: int) -> Stage:
    chunks = tuple(Chunk(first_layer=(chunk * 8 + rank) * 2, layers=2) for chunk in range(2))
    return like.replaced(
        chunks=chunks,
        layers=4,
        has_embedding=rank == 0,
        has_head=rank == 7,
        recompute=like.recompute.replaced(set=(), layers=0),
    )


def test_activation_offload_beside_pipelines_and_recompute() -> None:
    """Megatron refuses it with PP above 1 or with recompute; optimizer offload needs the distributed optimizer."""
    rule = "megatron-offloads-activations-of-layers"
    alone = {**GOOD, "offload_activations": 0.5}
    assert rule not in dict(refusals(alone, "megatron"))
    assert rule in dict(refusals({**alone, **HALF}, "megatron"))
    assert rule in dict(refusals({**alone, **FULL}, "megatron"))
    assert "megatron-offloads-sharded-optimizer" in dict(refusals({**GOOD, "offload_optimizer": 1.0}, "megatron"))


def test_context_parallelism_of_windowed_attention() -> None:
    """accelerate refuses it where any layer has a window; Megatron's kernels know windows."""
    values = {**GOOD, "cp": 2, "windowed_layers": 18}
    rule = "accelerate-splits-context-of-full-attention"
    assert dict(refusals(values, "accelerate"))[rule] == "cp must be 1 with windowed attention (18 layers), got 2"
    assert rule not in dict(refusals({**values, "windowed_layers": 0}, "accelerate"))
    assert refusals(values, "megatron") == []

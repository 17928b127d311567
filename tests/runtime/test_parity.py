"""Every feature alone against one process, in float64."""

from itertools import cycle
from typing import Any

import pytest

from planner.document import Recompute
from runtime.support import check
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import MODELS, small_job, small_model
from tests.runtime.parity import apart

# Losses over three optimizer steps and every gradient of the first, relative.
TOLERANCE = 1e-10

# What works inside a layer, whose parts differ from model to model.
INSIDE: dict[str, dict[str, Any]] = {
    "one rank": {},
    "tensor parallel": {"tp": 2, "sequence_parallel": False},
    "sequence parallel": {"tp": 2},
    "more ranks than key heads": {"tp": 4},
    "more ranks than key heads, whole sequences": {"tp": 4, "sequence_parallel": False},
    "context parallel": {"cp": 2},
    "context and tensor parallel": {"cp": 2, "tp": 2},
    **{
        f"recompute {'+'.join(modules)} on {layers} layers": {
            "tp": 2,
            "recompute": Recompute(set=modules, layers=layers),
        }
        for modules, layers in (
            (("norm",), 4),
            (("activation",), 3),
            (("core_attention",), 4),
            (("mlp",), 2),
            (("norm", "activation"), 4),
            (("norm", "mlp"), 4),
            (("full",), 1),
        )
    },
}
# What works on whole layers or their parameters, whatever they are; combinations run it with other models, too.
OUTSIDE: dict[str, dict[str, Any]] = {
    "context parallel in replicated shards": {"cp": 2, "shard": 2, "replicate": 2, "zero": 3},
    "context parallel, order of ranks": {"cp": 2, "pp": 2, "shard": 2, "rank_order": "tp-cp-ep-pp-dp"},
    "replicas": {"shard": 2, "zero": 0},
    "zero 1": {"shard": 2, "zero": 1},
    "zero 2": {"shard": 2, "zero": 2},
    "fsdp without reshard": {"shard": 2, "zero": 3},
    "fsdp with reshard": {"shard": 2, "zero": 3, "reshard": True},
    "hsdp, zero 1": {"shard": 2, "replicate": 2, "zero": 1},
    "hsdp, zero 3": {"shard": 2, "replicate": 2, "zero": 3, "reshard": True},
    "accumulation": {"micro_batches": 5, "micro_batch_size": 2},
    "levels by stage": {"pp": 2, "shard": 2, "zero": (1, 3), "reshard": True},
    "order of ranks": {"tp": 2, "pp": 2, "shard": 2, "rank_order": "tp-cp-ep-pp-dp"},
    "gpipe": {"pp": 4, "schedule": "gpipe", "micro_batches": 3},
    "1f1b": {"pp": 4, "micro_batches": 6},
    "uneven stages": {"pp": 2, "layers": (1, 3)},
    "interleaved": {"pp": 2, "vpp": 2, "schedule": "interleaved", "micro_batches": 4},
    "interleaved in groups of 3": {"pp": 2, "vpp": 2, "schedule": "interleaved", "micro_batches": 6, "group_size": 3},
    "breadth-first": {"pp": 2, "vpp": 2, "schedule": "breadth-first", "micro_batches": 4},
    "chunks without a layer": {"pp": 2, "vpp": 2, "schedule": "interleaved", "layers": (0, 2, 2, 0)},
    **{name: {"pp": 2, "schedule": name, "micro_batches": 4} for name in ("zb-h1", "zb-h2", "zb-v", "v-half", "v-min")},
    "dualpipe-v": {"pp": 2, "schedule": "dualpipe-v", "micro_batches": 5},
    "split backwards, zero 3": {"pp": 2, "schedule": "zb-v", "micro_batches": 4, "shard": 2, "zero": 3},
    "split backwards, reshard": {
        "pp": 2,
        "schedule": "zb-h1",
        "micro_batches": 4,
        "shard": 2,
        "zero": 3,
        "reshard": True,
    },
}


# Each of the second kind with one model, in turn; those that share a matrix over a pipeline are two of three.
CASES = [(model, feature) for feature in INSIDE for model in MODELS]
CASES += [(model, feature) for feature, model in zip(OUTSIDE, cycle(MODELS))]
FEATURES = INSIDE | OUTSIDE


@pytest.mark.slow
@pytest.mark.parametrize(("model", "feature"), CASES)
def test_a_feature_alone_agrees_with_one_process(model: str, feature: str, ranks: Ranks) -> None:
    """Losses of three steps and gradients of the first agree to 1e-10 with a run without any of it."""
    job = small_job(small_model(**MODELS[model]), **FEATURES[feature])
    check(job)
    by_loss, by_gradient = apart(ranks(job.layout.gpus_used), job)
    assert by_loss <= TOLERANCE
    assert by_gradient <= TOLERANCE


SHAPES: dict[str, dict[str, Any]] = {
    "norms behind": {"norm_placement": "after"},
    "norms on both sides": {"norm_placement": "both"},
    "parallel block": {"parallel_block": True},
    "parallel block, one norm": {"parallel_block": True, "shared_norm": True},
    "embedding norm, biased head": {"embedding_norm": True, "head_bias": True, "norm": "layernorm"},
    "sliding windows": {"sliding_window": 5, "full_attention_step": 2},
    "chunked windows": {"sliding_window": 5, "window_kind": "chunked"},
    "no positions, wide heads": {"positions": "none", "head_dim": 16},
}


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_a_shape_of_model_agrees_with_one_process(shape: str, ranks: Ranks) -> None:
    """Tensor parallel and in a pipeline, with what can be forgotten forgotten."""
    recompute = Recompute(set=("norm", "activation", "core_attention", "mlp"), layers=1)
    job = small_job(small_model(**SHAPES[shape]), tp=2, pp=2, recompute=recompute)
    check(job)
    by_loss, by_gradient = apart(ranks(4), job)
    assert by_loss <= TOLERANCE
    assert by_gradient <= TOLERANCE

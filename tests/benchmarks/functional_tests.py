"""Peak bytes of Megatron-LM's functional tests, predicted from their arguments.

The tests log what the last rank has allocated at most. Rows are left out whose model cannot be told from the arguments:
those without a tokenizer's size, with a layout string, of reinforcement learning, of runs on more nodes than are named,
and those on old containers that choose the attention kernel by themselves.
"""

import re
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from cost_models.specs.errors import SpecError
from cost_models.specs.mla import MlaSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.moe import MoeSpec
from planner.evaluate.errors import RunError
from planner.evaluate.predictions import costs_of
from planner.evaluate.runs import Run, read_run
from planner.evaluate.statistics import Errors

FAMILIES = ("gpt", "moe", "mixtral", "nemotron")
LEAST_BYTES = 2**30
VOCABULARIES = (("256k", 256_000), ("128k", 131_072), ("multiMixV8", 131_072), ("qwen3", 151_936))
GPUS = (("gb200", "gb200"), ("h100", "h100-sxm"), ("a100", "a100-80-sxm"))
OTHER_RUNS = ("grpo", "release", "inference", "multi_dist_optimizer", "defer_embedding")


def memory_errors(rows: Sequence[Mapping[str, str]]) -> dict[Hashable, Errors]:
    """Errors of the peak by family."""
    known = [(row, run) for row in rows if _is_known(row) and (run := _run(row)) is not None]
    errors: dict[str, list[float]] = {}
    for (row, _), costs in zip(known, costs_of([run for _, run in known]), strict=True):
        error = float(costs.stages["allocated_bytes"][-1]) / float(row["max_mem_allocated_bytes"]) - 1.0
        errors.setdefault(row["test"].split("/")[0], []).append(error)
    return {name: Errors.of(np.array(values)) for name, values in sorted(errors.items())}


def _is_known(row: Mapping[str, str]) -> bool:
    peak, vocabulary = row["max_mem_allocated_bytes"], row["vocab-file"] or row["vocab-size"] or _vocab(row)
    told = row["hidden-size"] and row["mem_allocated_bytes_after_step"] and peak and float(peak) > LEAST_BYTES
    special = row["hybrid-layer-pattern"] or row["pipeline-model-parallel-layout"] or row["optimizer"] == "muon"
    other = any(word in row["test"] for word in OTHER_RUNS)
    other |= row["platform"].startswith("lts") and not row["attention-backend"]
    return bool(row["test"].split("/")[0] in FAMILIES and told and vocabulary and not special and not other)


def _vocab(row: Mapping[str, str]) -> int:
    tokenizer = row["tokenizer-model"]
    return int(row["vocab-size"] or next((size for word, size in VOCABULARIES if word in tokenizer), 0))


def _whole(row: Mapping[str, str], name: str, default: int) -> int:
    return int(row[name]) if row[name] else default


def _run(row: Mapping[str, str]) -> Run | None:
    """The configuration of a test; None where its arguments contradict what is known of the machine."""
    try:
        run = read_run(_cells(row))
        return replace(run, model=_model(row, run.model), recipe=run.recipe.replaced(**_fusion(row)))
    except (RunError, SpecError):
        return None


def _cells(row: Mapping[str, str]) -> dict[str, Any]:
    """The arguments of a test as the cells of a run."""
    layers, pp = _whole(row, "num-layers", 0), _whole(row, "pipeline-model-parallel-size", 1)
    per_chunk = _whole(row, "num-layers-per-virtual-pipeline-stage", 0)
    experts, heads = _whole(row, "num-experts", 0), _whole(row, "num-attention-heads", 0)
    hidden, tp = _whole(row, "hidden-size", 0), _whole(row, "tensor-model-parallel-size", 1)
    gpus = _whole(row, "nodes", 1) * _whole(row, "gpus_per_node", 8)
    modules = row["recompute-modules"].strip("[]").split()
    return {
        "model": "mixtral-8x7b" if experts else "gpt test",
        "gpu": next((gpu for word, gpu in GPUS if word in row["platform"]), "a100-80-sxm"),
        "recipe": "megatron",
        "n_layers": layers,
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _whole(row, "num-query-groups", heads),
        "ffn": _whole(row, "ffn-hidden-size", 4 * hidden),
        "vocab": _vocab(row) or 50257,
        "n_gpus": gpus,
        "gpus_per_node": _whole(row, "gpus_per_node", 8),
        "seq_len": _whole(row, "seq-length", 1024),
        "micro_batch": _whole(row, "micro-batch-size", 1),
        "global_batch_seqs": row["global-batch-size"],
        "tp": tp,
        "pp": pp,
        "vpp": layers // pp // per_chunk if per_chunk else row["num-virtual-stages-per-pipeline-rank"],
        "cp": _whole(row, "context-parallel-size", 1),
        "ep": _whole(row, "expert-model-parallel-size", 1),
        "etp": row["expert-tensor-parallel-size"],
        "n_experts": experts or "",
        "topk": _whole(row, "moe-router-topk", 2) if experts else "",
        "sp": int(row["sequence-parallel"] == "true"),
        "zero_or_fsdp": 3
        if row["data-parallel-sharding-strategy"]
        else int(row["use-distributed-optimizer"] == "true"),
        "recompute": f"selective:{'+'.join(modules)}" if modules else "none",
        "precision": "fp8" if row["fp8-format"] else "bf16",
    }


def _fusion(row: Mapping[str, str]) -> dict[str, bool]:
    """GPTs train with dropout, gated models without; attention is fused unless the arguments say otherwise."""
    unfused = row["attention-backend"] == "unfused" or row["transformer-impl"] == "local"
    return {"dropout": row["swiglu"] != "true", "flash_attention": not unfused}


def _model(row: Mapping[str, str], sized: ModelSpec) -> ModelSpec:
    gated = row["swiglu"] == "true"
    changes: dict[str, Any] = {
        "gated_mlp": gated,
        "mlp_bias": not gated,
        "norm": "layernorm",
        "tie_embeddings": row["untie-embeddings-and-output-weights"] != "true",
        "mtp_layers": _whole(row, "mtp-num-layers", 0),
        "head_dim": _whole(row, "kv-channels", sized.hidden // sized.heads),
        "max_seq_len": _whole(row, "seq-length", 1024),
        "positions": "rope" if gated else "learned",
    }
    if row["multi-latent-attention"] == "true":
        latent = MlaSpec(query_rank=0, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128)
        plain = {"head_dim": 192, "kv_heads": sized.heads, "qkv_bias": False, "positions": "rope"}
        changes |= {"mla": latent, "norm": "rmsnorm", **plain}
    if sized.moe is not None:
        changes["moe"] = _experts(row, sized)
    return sized.replaced(**changes)


def _experts(row: Mapping[str, str], sized: ModelSpec) -> MoeSpec:
    dense = re.match(r"\(\[0\]\*(\d+)", row["moe-layer-freq"])
    shared = _whole(row, "moe-shared-expert-intermediate-size", 0)
    return MoeSpec(
        experts=_whole(row, "num-experts", 0),
        top_k=_whole(row, "moe-router-topk", 2),
        expert_ffn=_whole(row, "moe-ffn-hidden-size", _whole(row, "ffn-hidden-size", 4 * sized.hidden)),
        shared_experts=int(shared > 0),
        shared_ffn=shared,
        leading_dense_layers=int(dense[1]) if dense else 0,
    )

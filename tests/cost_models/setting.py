"""Models, recipes, hardware and random columns that the cost-model tests share."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sympy import sympify

from cost_models import communication, kernels, overlap, stage, symbols
from cost_models.lower import Lowered, lower
from cost_models.specs.catalog import load_cluster, load_gpu, load_profile
from cost_models.specs.cluster import ClusterSpec, NetworkTier
from cost_models.specs.mla import MlaSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.moe import MoeSpec
from cost_models.specs.recipe import FrameworkRecipe

CLUSTER = load_cluster("dgx-h100", 4096)
PROFILE = load_profile("h100-sxm").replaced(tables=None)  # by hand one computes with constants
CONTEXT_BYTES = 0.6e9

DENSE = {
    "llama": ModelSpec(
        name="llama",
        layers=32,
        hidden=4096,
        ffn=14336,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocab=128256,
        max_seq_len=8192,
    ),
    "gpt": ModelSpec(
        name="gpt",
        layers=24,
        hidden=2048,
        ffn=8192,
        heads=16,
        kv_heads=16,
        head_dim=128,
        vocab=51200,
        max_seq_len=2048,
        gated_mlp=False,
        norm="layernorm",
        qkv_bias=True,
        attention_output_bias=True,
        mlp_bias=True,
        positions="learned",
    ),
    "tied": ModelSpec(
        name="tied",
        layers=16,
        hidden=512,
        ffn=2048,
        heads=8,
        kv_heads=2,
        head_dim=64,
        vocab=50304,
        max_seq_len=4096,
        tie_embeddings=True,
    ),
}
KINDS = {
    "latent": ModelSpec(
        name="latent",
        layers=9,
        hidden=2048,
        ffn=8192,
        heads=16,
        kv_heads=16,
        head_dim=192,
        vocab=64000,
        max_seq_len=8192,
        moe=MoeSpec(
            experts=64,
            top_k=6,
            expert_ffn=1408,
            shared_experts=2,
            shared_ffn=2816,
            shared_expert_gate=True,
            leading_dense_layers=2,
            router_bias=True,
        ),
        mla=MlaSpec(query_rank=768, kv_rank=512, nope_head_dim=128, rope_head_dim=64, value_head_dim=128),
        mtp_layers=1,
    ),
    "windows": ModelSpec(
        name="windows",
        layers=14,
        hidden=2560,
        ffn=10240,
        heads=8,
        kv_heads=4,
        head_dim=256,
        vocab=128000,
        max_seq_len=8192,
        norm_placement="both",
        qk_norm="head",
        sliding_window=1024,
        full_attention_step=4,
        tie_embeddings=True,
    ),
    "routed": ModelSpec(
        name="routed",
        layers=12,
        hidden=4096,
        ffn=12288,
        heads=32,
        kv_heads=8,
        head_dim=128,
        vocab=32000,
        max_seq_len=8192,
        moe=MoeSpec(experts=8, top_k=2, expert_ffn=14336, layer_step=2),
        attention_sinks=True,
    ),
}
MODELS = DENSE | KINDS
RECIPES = {
    "megatron": FrameworkRecipe(name="megatron"),
    "before flash": FrameworkRecipe(
        name="before flash",
        flash_attention=False,
        dropout=True,
        overlap_gradient_reduce=False,
        gradient_bytes=2,
        fused_gradient_accumulation=False,
    ),
    "waiting": FrameworkRecipe(
        name="waiting",
        overlap_gradient_reduce=False,
        overlap_parameter_gather=False,
        optimizer_temporary_bytes=40,
        optimizer_group_elements=10**6,
        recompute_stops_early=True,
        split_keeps_graph=True,
    ),
    "copying": FrameworkRecipe(
        name="copying",
        growing_segments=False,
        keeps_stage_outputs=True,
        reduces_in_buckets=True,
        norm_copy_bytes=8,
        stranded_logit_bytes=2,
        kernel_bytes=10**9,
    ),
    "pure bf16": FrameworkRecipe(name="pure bf16", master_bytes=0, moment_bytes=4, flash_attention=False),
}

Columns = dict[str, NDArray[np.float64]]


def functions(recipe: FrameworkRecipe, dtype: str = "bf16") -> dict[str, Callable[..., Any]]:
    """Every operator, bound to eight-GPU H100 nodes."""
    compute = kernels.bind(CLUSTER.gpu, PROFILE, recipe, dtype)
    return {**compute, **communication.bind(CLUSTER, PROFILE), **overlap.bind(PROFILE)}


@cache
def lowered(
    model_name: str, recipe_name: str, *, counting: bool = False, offload: bool = False
) -> tuple[Lowered, Lowered, Lowered]:
    """The three expressions of a model under a recipe: micro-batch, exchange, stage; `counting` counts wire bytes."""
    model, recipe = MODELS[model_name], RECIPES[recipe_name]
    bound = counting_functions() if counting else functions(recipe)
    return (
        lower(stage.micro_batch_costs(model, recipe), bound),
        lower(stage.exchange_costs(model, recipe), bound),
        lower(stage.stage_costs(model, recipe, CONTEXT_BYTES, offload=offload), bound),
    )


def counting_functions() -> dict[str, Callable[..., Any]]:
    """Operators that return bytes on the wire of one rank instead of seconds: compute is free and hides nothing."""

    def wire(tensor_bytes: Any, ranks: Any, stride: Any) -> Any:
        return tensor_bytes * (ranks - 1) / ranks

    free = kernels.bind(CLUSTER.gpu, PROFILE, RECIPES["megatron"], "bf16")
    return {
        **{name: lambda *sizes: 0.0 * sizes[0] for name in free},
        "all_gather_s": wire,
        "reduce_scatter_s": wire,
        "all_reduce_s": lambda *sizes: 2 * wire(*sizes),
        "all_to_all_s": wire,
        "expert_exchange_s": lambda held_bytes, copies, ranks, stride: wire(held_bytes, ranks, stride),
        "exposed_s": lambda compute, communication: communication,
        "exposed_beside_copies_s": lambda compute, communication, *copies: communication + sum(copies),
        "from_host_s": lambda size: size,
        "to_host_s": lambda size: size,
        "host_step_s": lambda size: 0.0 * size,
    }


def lower_whole(outputs: Mapping[str, Any], bodies: Mapping[str, Callable[..., Any]]) -> Lowered:
    """`lower` of operators that run on whole sequences: the only slice of one is the sequence."""
    whole = {symbols.slice_len: symbols.seq_len}
    return lower({name: sympify(cost).xreplace(whole) for name, cost in outputs.items()}, bodies)


def model_columns(model: ModelSpec) -> dict[str, float]:
    """The columns that a model fixes, in bf16."""
    names = ("hidden", "ffn", "heads", "kv_heads", "head_dim", "position_rows")
    columns = {name: getattr(model, name) for name in names}
    if model.moe:
        columns |= {name: getattr(model.moe, name) for name in ("experts", "top_k", "expert_ffn", "shared_ffn")}
    if model.mla:
        columns |= {name: getattr(model.mla, name) for name in ("query_rank", "kv_rank", "rope_head_dim")}
        columns["value_head_dim"] = model.mla.value_head_dim
    return columns | {"quantised": 0}


def random_columns(model: ModelSpec, rows: int, seed: int) -> Columns:
    """Layouts, stages and options drawn at random; flags take both values, counts are consistent."""
    rng = np.random.default_rng(seed)
    draw = {
        "tp": 2.0 ** rng.integers(0, 4, rows),
        "cp": 2.0 ** rng.integers(0, 3, rows),
        "ep": 2.0 ** rng.integers(0, 4, rows),
        "etp": 2.0 ** rng.integers(0, 2, rows),
        "expert_shard": 2.0 ** rng.integers(0, 4, rows),
        "expert_imbalance": 1 + rng.random(rows),
        "document_mask_imbalance": 1 + rng.random(rows),
        "pp": 2.0 ** rng.integers(0, 4, rows),
        "dp_shard": 2.0 ** rng.integers(0, 6, rows),
        "dp_replicate": 2.0 ** rng.integers(0, 3, rows),
        "vpp": rng.integers(1, 5, rows),
        "seq_len": 1024.0 * rng.integers(1, 9, rows),
        "micro_batch_size": rng.integers(1, 5, rows),
        "layers": rng.integers(1, 20, rows),
        "communicators": rng.integers(0, 6, rows),
        "live_layers": rng.integers(1, 200, rows),
        "live_embedding": rng.integers(0, 5, rows),
        "live_head": rng.integers(0, 5, rows),
    }
    for flag in map(str, symbols.RECOMPUTE_FLAGS.values()):
        draw[flag] = rng.integers(0, 2, rows)
    for flag in ("sequence_parallel", "has_embedding", "has_head", "cp_ring", "recompute_ends"):
        draw[flag] = rng.integers(0, 2, rows)
    draw["cp_heads"] = np.minimum(draw["cp"], 2.0 ** rng.integers(0, 3, rows))
    zero = rng.integers(0, 4, rows)
    draw |= {"shard_optimizer": zero >= 1, "shard_gradients": zero >= 2, "shard_weights": zero >= 3}
    draw["reshard"] = (zero >= 3) & (rng.integers(0, 2, rows) > 0)
    draw["recompute_layers"] = np.minimum(draw["layers"], rng.integers(0, 20, rows))
    draw["live_recompute_layers"] = np.minimum(draw["live_layers"], rng.integers(0, 200, rows))
    draw["dp_stride"] = draw["tp"] * draw["pp"]
    draw["replicate_stride"] = draw["dp_stride"] * draw["dp_shard"]
    draw["pp_stride"] = draw["tp"]
    draw["expert_stride"] = draw["ep"] * draw["etp"] * draw["pp"]
    draw["world"] = draw["dp_stride"] * draw["dp_shard"] * draw["dp_replicate"]
    draw["pipelined"] = draw["pp"] > 1
    draw["ends_apart"] = draw["pipelined"] & (rng.integers(0, 2, rows) > 0)
    for end in ("embedding", "head", "layers"):
        draw[f"waiting_{end}"] = np.minimum(draw[f"live_{end}"], rng.integers(0, 3, rows))
    draw["padded_vocab"] = np.ceil(model.vocab / (128 * draw["tp"])) * 128 * draw["tp"]
    draw |= {name: np.full(rows, value) for name, value in model_columns(model).items()}
    return {name: np.asarray(column, dtype=np.float64) for name, column in draw.items()}


def row(columns: Mapping[str, NDArray[Any]], index: int) -> dict[str, float]:
    """One row of columns as plain floats."""
    return {name: float(column[index]) for name, column in columns.items()}


def cluster_of(*tiers: tuple[str, int | None, float, float], gpus: int = 1024) -> ClusterSpec:
    """A cluster of H100s with tiers (kind, domain, bytes/s, oversubscription), 3, 14, 20, ... microseconds apart."""
    latencies = (3e-6, 14e-6, 20e-6, 30e-6)
    return ClusterSpec(
        name="drawn",
        gpu=load_gpu("h100-sxm"),
        gpus=gpus,
        gpus_per_node=8,
        tiers=tuple(
            NetworkTier(
                name=f"tier {index}",
                kind=kind,  # type: ignore[arg-type]
                domain_gpus=domain,
                link_bandwidth_bytes_per_s=bandwidth,
                links_per_gpu=1.0,
                latency_s=latencies[index],
                oversubscription=oversubscription,
            )
            for index, (kind, domain, bandwidth, oversubscription) in enumerate(tiers)
        ),
        host_memory_bytes=2**40,
        host_to_device_bandwidth_bytes_per_s=50e9,
    )

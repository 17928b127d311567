"""Small jobs to train."""

from typing import Any

from cost_models.schedules import V_SHAPED, placement
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document import Chunk, Parallelism, Recompute
from planner.document.job import Job, StageJob

SEQ_LEN = 16
MEGATRON = FrameworkRecipe(name="megatron")
NOTHING = Recompute()
RECIPE = FrameworkRecipe(name="test", vocab_multiple=8)
MODELS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen": {"qkv_bias": True, "qk_norm": "head", "tie_embeddings": True},
    "gpt": {
        "kv_heads": 4,
        "gated_mlp": False,
        "norm": "layernorm",
        "positions": "learned",
        "qkv_bias": True,
        "attention_output_bias": True,
        "mlp_bias": True,
        "tie_embeddings": True,
    },
}


def small_model(layers: int = 4, **changes: Any) -> ModelSpec:
    """A Llama of width 32, with some fields changed."""
    sizes = {"hidden": 32, "ffn": 48, "heads": 4, "kv_heads": 2, "head_dim": 8, "vocab": 61, "max_seq_len": SEQ_LEN}
    return ModelSpec(name="small", layers=layers, **{**sizes, **changes})


def small_job(
    model: ModelSpec,
    *,
    tp: int = 1,
    pp: int = 1,
    vpp: int = 1,
    cp: int = 1,
    shard: int = 1,
    replicate: int = 1,
    layers: tuple[int, ...] = (),
    schedule: str = "1f1b",
    micro_batches: int = 2,
    micro_batch_size: int = 1,
    group_size: int = 0,
    zero: int | tuple[int, ...] = 1,
    reshard: bool = False,
    recompute: Recompute = NOTHING,
    rank_order: str = "tp-cp-ep-dp-pp",
    sequence_parallel: bool = True,
    recipe: FrameworkRecipe = RECIPE,
) -> Job:
    """A job; `layers` of each virtual stage in the order of the model, as even as can be by default."""
    vpp = 2 if schedule in V_SHAPED else vpp
    counts = layers or tuple(model.layers // (pp * vpp) + (i < model.layers % (pp * vpp)) for i in range(pp * vpp))
    levels = zero if isinstance(zero, tuple) else (zero,) * pp
    first = [sum(counts[:index]) for index in range(pp * vpp)]
    stage_of = placement(schedule, pp, vpp).stage_of()
    stages = tuple(
        StageJob(
            tuple(Chunk(first_layer=first[stage], layers=counts[stage]) for stage in stage_of[rank].tolist()),
            zero_stage=levels[rank],
            reshard_after_forward=reshard and levels[rank] == 3,
            recompute=recompute,
        )
        for rank in range(pp)
    )
    dp = shard * replicate
    layout = Parallelism(
        tp=tp,
        sequence_parallel=sequence_parallel and tp > 1,
        pp=pp,
        vpp=vpp,
        cp=cp,
        dp=dp,
        dp_shard=shard,
        dp_replicate=replicate,
        rank_order=rank_order,  # type: ignore[arg-type]
        micro_batch_size=micro_batch_size,
        num_microbatches=micro_batches,
        schedule=schedule,
        group_size=group_size,
        gpus_used=tp * pp * cp * dp,
    )
    workload = WorkloadSpec(seq_len=SEQ_LEN, global_batch=layout.global_batch)
    return Job(model, workload, recipe, layout, stages)

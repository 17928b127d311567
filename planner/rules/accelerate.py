"""What accelerate, the transformers Trainer and Axolotl can express: FSDP2 or DDP, with TP and context parallelism."""

import numpy as np

from planner.rules.choices import (
    everything_or_nothing_recomputed,
    fully_sharded_or_replicated,
    host_takes_nothing,
    states_offloaded_together,
)
from planner.rules.express import (
    Launcher,
    experts_on_tensor_ranks,
    kinds_of_context,
    kv_heads_divide,
    no_experts_apart,
    no_pipeline,
    no_sequence_parallel,
    vocabulary_divides,
)
from planner.rules.rule import Rule

__all__ = ["ACCELERATE", "ACCELERATE_RULES", "AXOLOTL", "AXOLOTL_RULES", "TRAINER", "TRAINER_RULES"]

ACCELERATE = Launcher("accelerate", "accelerate 1.15")
TRAINER = Launcher("trainer", "transformers 5.24 with accelerate 1.15")
AXOLOTL = Launcher("axolotl", "Axolotl 0.19")


def _shared(launcher: Launcher, schema: str, context: str) -> tuple[Rule, ...]:
    """The rules that all three have; `schema` and `context` say where their keys are."""
    return (
        no_pipeline(launcher, f"{schema} has no pipeline degree."),
        no_experts_apart(launcher, f"{schema} has no expert degree."),
        experts_on_tensor_ranks(launcher),
        no_sequence_parallel(launcher, "TP plans of transformers reduce activations to every rank."),
        kv_heads_divide(launcher),
        vocabulary_divides(launcher),
        kinds_of_context(launcher, context, "all_gather", "ring"),
        launcher.rule(
            "replicas-are-of-shards",
            "dp_replicate",
            "layout",
            "replicas beside TP or context parallelism are of shard groups of more than one rank",
            f"{schema} refuses dp_replicate with tp or cp unless states are sharded too.",
            lambda v: (
                np.equal(v["dp_replicate"], 1)
                | np.greater(v["dp_shard"], 1)
                | (np.equal(v["tp"], 1) & np.equal(v["cp"], 1))
            ),
            lambda v: (
                f"dp_shard must be above 1 with dp_replicate {v['dp_replicate']}, tp {v['tp']} and cp {v['cp']}, "
                f"got {v['dp_shard']}"
            ),
            dp_shard=1,
            dp_replicate=4,
            tp=2,
            cp=1,
        ),
        fully_sharded_or_replicated(launcher, "FSDP2 shards all states; DDP has no other parallelism beside it."),
        everything_or_nothing_recomputed(launcher, "Activation checkpointing is on or off."),
        states_offloaded_together(launcher, "FSDP2's CPU offload moves all states."),
    )


def _full_attention(launcher: Launcher) -> Rule:
    return launcher.rule(
        "splits-context-of-full-attention",
        "cp",
        "mesh",
        "context parallelism needs full attention in every layer",
        "Its ring drops the masks of layers: a model with sliding or chunked windows would train another attention.",
        lambda v: np.equal(v["cp"], 1) | np.equal(v["windowed_layers"], 0),
        lambda v: f"cp must be 1 with windowed attention ({v['windowed_layers']} layers), got {v['cp']}",
        cp=2,
        windowed_layers=24,
    )


def _checkpoints_may_leave(launcher: Launcher, key: str, least_zero_stage: int) -> Rule:
    where = " under ZeRO-3" if least_zero_stage else ""
    return launcher.rule(
        "offloads-checkpoints",
        "offload",
        "stage",
        f"activations leave the device only where layers are recomputed in full{where}, and all of them",
        f"{key} moves the inputs of checkpointed layers.",
        lambda v: (
            np.equal(v["offload_activations"], 0)
            | (
                np.equal(v["offload_activations"], 1)
                & np.equal(v["recompute_full"], 1)
                & np.greater_equal(v["zero_stage"], least_zero_stage)
            )
        ),
        lambda v: (
            f"offload of activations must be 0, or 1 with layers recomputed in full{where}; "
            f"got {v['offload_activations']:g} {'with' if v['recompute_full'] else 'without'} full recompute"
        ),
        offload_activations=0.5,
        recompute_full=1,
        zero_stage=3,
    )


TORCH_CONTEXT = "cp_comm_strategy is allgather or alltoall (a ring); Ulysses needs its DeepSpeed back end."
ACCELERATE_RULES = (
    *_shared(ACCELERATE, "ParallelismConfig", TORCH_CONTEXT),
    _full_attention(ACCELERATE),
    _checkpoints_may_leave(ACCELERATE, "fsdp_activation_checkpointing_offload", 3),
)
TRAINER_RULES = (
    *_shared(TRAINER, "ParallelismConfig", TORCH_CONTEXT),
    _full_attention(TRAINER),
    host_takes_nothing(TRAINER, "activations"),
)
AXOLOTL_RULES = (
    *_shared(AXOLOTL, "Its schema", "context_parallel_size uses ring_flash_attn: a ring, or gathered keys and values."),
    _checkpoints_may_leave(AXOLOTL, "activation_offloading", 0),
)

"""What DeepSpeed can express: its JSON, AutoTP, Ulysses, and PipelineModule for pipelines."""

from typing import Any

import numpy as np

from planner.rules.choices import equal_on_stages, even_layers, everything_or_nothing_recomputed
from planner.rules.express import (
    Launcher,
    experts_on_tensor_ranks,
    kinds_of_context,
    kv_heads_divide,
    no_experts_apart,
    no_sequence_parallel,
    one_rank_order,
    one_shard_group,
    runs_schedules,
    vocabulary_divides,
)
from planner.rules.rule import Rule, Values

__all__ = ["DEEPSPEED", "DEEPSPEED_RULES"]

DEEPSPEED = Launcher("deepspeed", "DeepSpeed 0.19")


def _optimizer_may_leave(values: Values) -> Any:
    share, zero = values["offload_optimizer"], values["zero_stage"]
    whole = np.equal(share, 1) & np.greater_equal(zero, 1)
    return np.equal(share, 0) | whole | np.equal(zero, 3)


def _weights_may_leave(values: Values) -> Any:
    share = values["offload_weights"]
    return np.equal(share, 0) | (np.equal(share, 1) & np.equal(values["zero_stage"], 3))


def _activations_may_leave(values: Values) -> Any:
    share = values["offload_activations"]
    return np.equal(share, 0) | (np.equal(share, 1) & np.equal(values["recompute_full"], 1))


OFFLOAD_RULES: tuple[Rule, ...] = (
    DEEPSPEED.rule(
        "offloads-sharded-optimizer",
        "offload",
        "stage",
        "optimizer states leave the device under ZeRO-1 or more, a part of them under ZeRO-3 alone",
        "offload_optimizer belongs to zero_optimization; its ratio is read by stage 3.",
        _optimizer_may_leave,
        lambda v: (
            "offload of optimizer must be 0, 1 with zero_stage 1 or more, or any share with zero_stage 3; "
            f"got {v['offload_optimizer']:g} with zero_stage {v['zero_stage']}"
        ),
        offload_optimizer=0.5,
        zero_stage=1,
    ),
    DEEPSPEED.rule(
        "offloads-gradients-with-optimizer",
        "offload",
        "stage",
        "gradients leave the device with the optimizer states, as large a share",
        "offload_optimizer moves both; there is no key for gradients.",
        lambda v: np.equal(v["offload_gradients"], v["offload_optimizer"]),
        lambda v: (
            f"offload of gradients must be that of the optimizer ({v['offload_optimizer']:g}), "
            f"got {v['offload_gradients']:g}"
        ),
        offload_gradients=0.5,
        offload_optimizer=1.0,
    ),
    DEEPSPEED.rule(
        "offloads-sharded-weights",
        "offload",
        "stage",
        "weights leave the device all together and under ZeRO-3",
        "offload_param belongs to stage 3 and has no ratio.",
        _weights_may_leave,
        lambda v: (
            "offload of weights must be 0, or 1 with zero_stage 3; "
            f"got {v['offload_weights']:g} with zero_stage {v['zero_stage']}"
        ),
        offload_weights=1.0,
        zero_stage=1,
    ),
    DEEPSPEED.rule(
        "offloads-checkpoints",
        "offload",
        "stage",
        "activations leave the device only where layers are recomputed in full, and all of them",
        "activation_checkpointing.cpu_checkpointing moves the inputs of checkpointed layers.",
        _activations_may_leave,
        lambda v: (
            "offload of activations must be 0, or 1 with layers recomputed in full; "
            f"got {v['offload_activations']:g} {'with' if v['recompute_full'] else 'without'} full recompute"
        ),
        offload_activations=0.5,
        recompute_full=1,
    ),
)

DEEPSPEED_RULES = (
    runs_schedules(DEEPSPEED, "Its pipeline engine runs 1F1B and has one chunk a rank.", "1f1b"),
    DEEPSPEED.rule(
        "pipelines-keep-gradients-whole",
        "zero_stage",
        "stage",
        "with a pipeline the ZeRO stage is 0 or 1",
        "Its pipeline engine adds gradients up over micro-batches and refuses ZeRO-2 and ZeRO-3.",
        lambda v: np.equal(v["pp"], 1) | np.less_equal(v["zero_stage"], 1),
        lambda v: f"zero_stage must be 0 or 1 with pp above 1, got {v['zero_stage']} with pp {v['pp']}",
        pp=2,
        zero_stage=2,
    ),
    one_rank_order(DEEPSPEED),
    one_shard_group(DEEPSPEED, "Replicas of shard groups (hpZ) hold weights alone; other states have one group."),
    kv_heads_divide(DEEPSPEED),
    vocabulary_divides(DEEPSPEED),
    no_sequence_parallel(DEEPSPEED, "AutoTP reduces activations to every rank."),
    kinds_of_context(DEEPSPEED, "sequence_parallel_size is Ulysses: heads are exchanged.", "ulysses"),
    no_experts_apart(DEEPSPEED, "The JSON has no expert degree: ep_size is an argument of its MoE layer."),
    experts_on_tensor_ranks(DEEPSPEED),
    even_layers(DEEPSPEED, "partition_method names a rule, no numbers: only an even split is sure."),
    DEEPSPEED.rule(
        "reshards-after-forward",
        "reshard_after_forward",
        "stage",
        "ZeRO-3 frees gathered weights after the forward pass",
        "Stage 3 releases weights after their use; keys bound how many stay, none keeps them all.",
        lambda v: np.less(v["zero_stage"], 3) | np.equal(v["reshard"], 1),
        lambda v: "reshard_after_forward must be true under ZeRO-3, got false",
        zero_stage=3,
        reshard=0,
    ),
    everything_or_nothing_recomputed(DEEPSPEED, "Its activation checkpointing wraps whole layers, at one interval."),
    *OFFLOAD_RULES,
    *equal_on_stages(DEEPSPEED, "The JSON has one value for all ranks.", "zero", "recompute", "offload"),
)

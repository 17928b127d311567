"""What torchtitan can express."""

import numpy as np

from planner.rules.choices import (
    equal_on_stages,
    everything_or_nothing_recomputed,
    fully_sharded_or_replicated,
    host_takes_nothing,
    states_offloaded_together,
)
from planner.rules.express import (
    Launcher,
    experts_in_one_piece,
    kinds_of_context,
    kv_heads_divide,
    microbatches_fill_1f1b,
    one_rank_order,
    rounds_of_torch,
    runs_schedules,
    untied_with_pipeline,
    vocabulary_divides,
)
from planner.rules.schedules import TORCH

__all__ = ["TORCHTITAN", "TORCHTITAN_RULES"]

TORCHTITAN = Launcher("torchtitan", "torchtitan 0.3")

TORCHTITAN_RULES = (
    runs_schedules(
        TORCHTITAN,
        "pipeline_parallel_schedule is a name that torch.distributed.pipelining knows.",
        *TORCH,
    ),
    microbatches_fill_1f1b(TORCHTITAN),
    rounds_of_torch(TORCHTITAN),
    untied_with_pipeline(TORCHTITAN),
    one_rank_order(TORCHTITAN),
    kv_heads_divide(TORCHTITAN),
    vocabulary_divides(TORCHTITAN),
    TORCHTITAN.rule(
        "has-rotary-positions-for-sequence",
        "seq_len",
        "mesh",
        "the sequence is not longer than the model's context",
        "Rotary tables are made for the model's longest context; a longer sequence is refused.",
        lambda v: np.less_equal(v["seq_len"], v["max_seq_len"]),
        lambda v: f"seq_len must be at most max_seq_len ({v['max_seq_len']}), got {v['seq_len']}",
        seq_len=16384,
        max_seq_len=8192,
    ),
    kinds_of_context(
        TORCHTITAN, "Version 0.3 has no context_parallel_rotate_method: keys and values are gathered.", "all_gather"
    ),
    experts_in_one_piece(
        TORCHTITAN, "Version 0.3 has no expert_tensor_parallel_degree: expert ranks take the TP ranks over."
    ),
    TORCHTITAN.rule(
        "experts-fill-shards",
        "ep",
        "layout",
        "ep divides dp_shard*cp*tp",
        "Expert ranks are the ranks of one copy of the states, dealt out anew.",
        lambda v: np.mod(v["dp_shard"] * v["cp"] * v["tp"], v["ep"]) == 0,
        lambda v: f"ep must divide dp_shard*cp*tp ({v['dp_shard'] * v['cp'] * v['tp']}), got {v['ep']}",
        ep=8,
        dp_shard=4,
        cp=1,
        tp=1,
    ),
    fully_sharded_or_replicated(
        TORCHTITAN, "data_parallel_shard_degree shards weights, gradients and optimizer states alike."
    ),
    everything_or_nothing_recomputed(
        TORCHTITAN,
        "Its selective mode saves every second matrix product of a layer, which is none of the sets here; full covers "
        "every layer.",
    ),
    states_offloaded_together(TORCHTITAN, "training.enable_cpu_offload moves all states."),
    host_takes_nothing(TORCHTITAN, "activations"),
    *equal_on_stages(TORCHTITAN, "The configuration has one value for all ranks.", "zero", "recompute", "offload"),
)

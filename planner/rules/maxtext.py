"""What MaxText can express."""

import numpy as np

from planner.rules.choices import equal_on_stages, even_layers, everything_or_nothing_recomputed, host_takes_nothing
from planner.rules.express import (
    Launcher,
    experts_on_tensor_ranks,
    kinds_of_context,
    kv_heads_divide,
    one_rank_order,
    runs_schedules,
    vocabulary_divides,
)

__all__ = ["MAXTEXT", "MAXTEXT_RULES"]

MAXTEXT = Launcher("maxtext", "MaxText 0.2.5")

MAXTEXT_RULES = (
    runs_schedules(
        MAXTEXT,
        "Its circular pipeline runs all forward passes first, with num_pipeline_repeats chunks a rank.",
        *("gpipe", "breadth-first"),
    ),
    MAXTEXT.rule(
        "has-whole-rounds",
        "num_microbatches",
        "layout",
        "pp divides the number of micro-batches",
        "Its circular pipeline works in rounds of pp micro-batches.",
        lambda v: np.mod(v["num_microbatches"], v["pp"]) == 0,
        lambda v: f"num_microbatches must be a multiple of pp ({v['pp']}), got {v['num_microbatches']}",
        pp=4,
        num_microbatches=6,
    ),
    one_rank_order(MAXTEXT),
    kv_heads_divide(MAXTEXT),
    vocabulary_divides(MAXTEXT),
    kinds_of_context(MAXTEXT, "ulysses and usp are refused on GPUs.", "all_gather", "ring"),
    experts_on_tensor_ranks(MAXTEXT),
    MAXTEXT.rule(
        "experts-are-data-ranks",
        "ep",
        "layout",
        "ep divides dp_shard",
        "The expert axis is one of the mesh's own, over which batches are split too.",
        lambda v: np.mod(v["dp_shard"], v["ep"]) == 0,
        lambda v: f"ep must divide dp_shard ({v['dp_shard']}), got {v['ep']}",
        ep=8,
        dp_shard=4,
    ),
    even_layers(MAXTEXT, "num_layers_per_pipeline_stage is one number."),
    MAXTEXT.rule(
        "shards-everything-or-nothing",
        "zero_stage",
        "stage",
        "the ZeRO stage is 3 where dp_shard, cp or ep is above 1 and shards, else 0",
        "The fsdp, context and expert axes shard all states, the data axis none.",
        lambda v: np.where(
            np.equal(v["zero_stage"], 0),
            np.equal(v["cp"] * v["ep"], 1),
            np.equal(v["zero_stage"], 3) & np.greater(v["dp_shard"] * v["cp"], 1),
        ).astype(bool),
        lambda v: (
            f"zero_stage must be 0 with cp and ep 1, or 3 with dp_shard*cp above 1; got {v['zero_stage']} with "
            f"cp {v['cp']}, ep {v['ep']}, dp_shard {v['dp_shard']}"
        ),
        zero_stage=1,
        cp=1,
        ep=1,
        dp_shard=8,
    ),
    MAXTEXT.rule(
        "keeps-gathered-weights-with-pipeline",
        "reshard_after_forward",
        "stage",
        "ZeRO-3 without resharding after the forward pass needs a pipeline",
        "pipeline_fsdp_ag_once gathers the weights of a pipeline once a step; there is no such key without.",
        lambda v: np.less(v["zero_stage"], 3) | np.equal(v["reshard"], 1) | np.greater(v["pp"], 1),
        lambda v: f"reshard_after_forward must be true under ZeRO-3 with pp {v['pp']}, got false",
        zero_stage=3,
        reshard=0,
        pp=1,
    ),
    everything_or_nothing_recomputed(MAXTEXT, "Its remat policies name what is kept; full keeps inputs of layers."),
    host_takes_nothing(MAXTEXT, "gradients", "activations"),
    MAXTEXT.rule(
        "offloads-whole-states",
        "offload",
        "stage",
        "weights and optimizer states are on the host as a whole or not at all",
        "optimizer_memory_host_offload and parameter_memory_host_offload are on or off.",
        lambda v: np.isin(v["offload_weights"], (0, 1)) & np.isin(v["offload_optimizer"], (0, 1)),
        lambda v: (
            "offload of weights and of optimizer must be 0 or 1, "
            f"got {v['offload_weights']:g} and {v['offload_optimizer']:g}"
        ),
        offload_weights=0,
        offload_optimizer=0.5,
    ),
    *equal_on_stages(MAXTEXT, "The configuration has one value for all ranks.", "zero", "recompute", "offload"),
)

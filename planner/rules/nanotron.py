"""What nanotron can express."""

import numpy as np

from planner.rules.choices import (
    OFFLOADED,
    equal_on_stages,
    even_layers,
    everything_or_nothing_recomputed,
    host_takes_nothing,
)
from planner.rules.express import (
    Launcher,
    experts_on_tensor_ranks,
    kinds_of_context,
    kv_heads_divide,
    one_rank_order,
    one_shard_group,
    runs_schedules,
)

__all__ = ["NANOTRON", "NANOTRON_RULES"]

NANOTRON = Launcher("nanotron", "nanotron of April 2026")

NANOTRON_RULES = (
    runs_schedules(NANOTRON, "pp_engine is 1f1b or afab.", "1f1b", "gpipe"),
    NANOTRON.rule(
        "fills-pipeline",
        "num_microbatches",
        "layout",
        "there are at least pp-1 micro-batches",
        "Its pipeline engine asserts it.",
        lambda v: np.greater_equal(v["num_microbatches"], np.subtract(v["pp"], 1)),
        lambda v: f"num_microbatches must be at least pp-1 ({v['pp'] - 1}), got {v['num_microbatches']}",
        pp=8,
        num_microbatches=1,
    ),
    one_rank_order(NANOTRON),
    one_shard_group(NANOTRON, "dp is the only data-parallel degree."),
    kv_heads_divide(NANOTRON),
    kinds_of_context(NANOTRON, "context_parallel_size uses ring attention.", "ring"),
    experts_on_tensor_ranks(NANOTRON),
    even_layers(NANOTRON, "It has no key for the layers of a stage."),
    NANOTRON.rule(
        "shards-optimizer-at-most",
        "zero_stage",
        "stage",
        "the ZeRO stage is 0 or 1",
        "optimizer.zero_stage knows these two.",
        lambda v: np.less_equal(v["zero_stage"], 1),
        lambda v: f"zero_stage must be 0 or 1, got {v['zero_stage']}",
        zero_stage=3,
    ),
    everything_or_nothing_recomputed(NANOTRON, "recompute_layer is on or off."),
    host_takes_nothing(NANOTRON, *OFFLOADED),
    *equal_on_stages(NANOTRON, "The configuration has one value for all ranks.", "zero", "recompute"),
)

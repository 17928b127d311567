"""What NeMo AutoModel can express."""

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
    one_rank_order,
    rounds_of_torch,
    runs_schedules,
    untied_with_pipeline,
    vocabulary_divides,
)
from planner.rules.schedules import TORCH

__all__ = ["AUTOMODEL", "AUTOMODEL_RULES"]

AUTOMODEL = Launcher("automodel", "NeMo AutoModel 0.7")

AUTOMODEL_RULES = (
    runs_schedules(
        AUTOMODEL,
        "pipeline.pp_schedule is a name that torch.distributed.pipelining knows; of those with a V it places the "
        "chunks of ZB-V alone.",
        *(name for name in TORCH if name != "dualpipe-v"),
    ),
    AUTOMODEL.rule(
        "fills-pipeline",
        "num_microbatches",
        "layout",
        "a pipeline has at least pp micro-batches",
        "Its recipes assert it, whatever the schedule.",
        lambda v: np.equal(v["pp"], 1) | np.greater_equal(v["num_microbatches"], v["pp"]),
        lambda v: f"num_microbatches must be at least pp ({v['pp']}), got {v['num_microbatches']}",
        pp=8,
        num_microbatches=1,
    ),
    rounds_of_torch(AUTOMODEL),
    untied_with_pipeline(AUTOMODEL),
    one_rank_order(AUTOMODEL),
    kv_heads_divide(AUTOMODEL),
    vocabulary_divides(AUTOMODEL),
    kinds_of_context(AUTOMODEL, "cp_size is the only key: keys and values are gathered.", "all_gather"),
    experts_in_one_piece(AUTOMODEL, "ep_size deals out whole experts; there is no degree of slices of them."),
    AUTOMODEL.rule(
        "replicas-are-of-shards",
        "dp_replicate",
        "layout",
        "dp_replicate is less than dp, or 1",
        "dp_replicate_size splits FSDP2's ranks into groups; groups of one rank are refused.",
        lambda v: np.equal(v["dp_replicate"], 1) | np.less(v["dp_replicate"], v["dp"]),
        lambda v: f"dp_replicate must be less than dp ({v['dp']}), got {v['dp_replicate']}",
        dp=8,
        dp_replicate=8,
    ),
    fully_sharded_or_replicated(AUTOMODEL, "strategy fsdp2 shards all states; ddp has no other parallelism beside it."),
    everything_or_nothing_recomputed(AUTOMODEL, "activation_checkpointing is on or off."),
    states_offloaded_together(AUTOMODEL, "offload_policy is FSDP2's: it moves all states."),
    host_takes_nothing(AUTOMODEL, "activations"),
    *equal_on_stages(AUTOMODEL, "The configuration has one value for all ranks.", "zero", "recompute", "offload"),
)

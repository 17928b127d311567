"""What NeMo AutoModel can express."""

import numpy as np

from planner.rules.choices import (
    OFFLOADED,
    equal_on_stages,
    everything_or_nothing_recomputed,
    fully_sharded_or_replicated,
    host_takes_nothing,
)
from planner.rules.express import (
    Launcher,
    experts_in_one_piece,
    kinds_of_context,
    kv_heads_divide,
    microbatches_fill_1f1b,
    one_rank_order,
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
        "pipeline.pp_schedule is a name that torch.distributed.pipelining knows.",
        *TORCH,
    ),
    microbatches_fill_1f1b(AUTOMODEL),
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
    AUTOMODEL.rule(
        "reshards-after-forward",
        "reshard_after_forward",
        "stage",
        "ZeRO-3 frees gathered weights after the forward pass",
        "The distributed section has no key that keeps them.",
        lambda v: np.less(v["zero_stage"], 3) | np.equal(v["reshard"], 1),
        lambda v: "reshard_after_forward must be true under ZeRO-3, got false",
        zero_stage=3,
        reshard=0,
    ),
    everything_or_nothing_recomputed(AUTOMODEL, "activation_checkpointing is on or off."),
    host_takes_nothing(AUTOMODEL, *OFFLOADED),
    *equal_on_stages(AUTOMODEL, "The configuration has one value for all ranks.", "zero", "recompute"),
)

"""What a search leaves out, in words, each with the flag that turns it on where there is one."""

from planner.pipelines import deepest, is_sliced, schedule_names
from planner.request import PlanRequest
from planner.rules import FLEXIBLE, SCHEDULES

__all__ = ["not_searched"]

NEVER = (
    "tensor parallelism beyond the innermost network tier (rule tp-inside-domain)",
    "sequence parallelism other than the recipe's (--set recipe.sequence_parallel)",
    "experts with HSDP or with pipeline ranks inside DP",
    "other sets of modules to recompute, and a set on a part of a stage's layers unless it is the full one",
    "stages that split a repeating group of layers, chunks of a rank that differ by more than one",
    "DualPipe with two copies of the parameters",
)
GROUPS = (
    "shard groups other than all of DP and the most of it that stays inside a network tier, experts in other slices "
    "than one or TP, hierarchical context parallelism of fewer ranks than a tier has (--search groups)"
)
OFFLOAD = (
    "offload to the host where something fits without, in more than its usual combinations, and in "
    "other than equal shares of a node (--search offload)"
)
MESHES = "stages of other GPUs, TP or DP than the rest (--search meshes, with --target runtime)"
LARGE_MESHES = (
    "stages of other GPUs, TP or DP than the rest that leave GPUs idle, with experts, CP or HSDP, more than 8 of them, "
    "or in other schedules than 1f1b"
)
SLICES = "slices of several sequences, and other numbers of slices than a few times pp or powers of two"


def not_searched(request: PlanRequest) -> tuple[str, ...]:
    """What no layout of the search has."""
    asked = request.search
    return (
        *((OFFLOAD,) if "offload" not in asked else ()),
        *((GROUPS,) if "groups" not in asked else ()),
        LARGE_MESHES if "meshes" in asked else MESHES,
        *_recipes(request),
        *_schedules(request),
        *NEVER,
        *((SLICES,) if is_sliced(request) else ()),
    )


def _recipes(request: PlanRequest) -> tuple[str, ...]:
    """The parts of the recipe that are held to one variant."""
    left = {"precision": "other precisions", "optimizer": "other optimizers", "loss": "other losses"}
    names = [name for name in left if name not in request.search]
    return (f"{', '.join(left[name] for name in names)} (--search {','.join(names)})",) if names else ()


def _schedules(request: PlanRequest) -> tuple[str, ...]:
    """The schedules that are left out of a search, where there can be a pipeline."""
    left = [name for name in SCHEDULES if name not in schedule_names(request)]
    told = [f"the schedules {', '.join(left)} (--target runtime, --schedule)"] if left else []
    if FLEXIBLE not in request.schedules and deepest(request) > 1:
        told.append(f"groups of other than pp interleaved micro-batches (--schedule {FLEXIBLE})")
    return tuple(told)

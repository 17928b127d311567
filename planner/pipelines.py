"""Ways to run a pipeline: the schedules of a request, their chunks, slices and groups of micro-batches."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.schedules import interleaved
from cost_models.specs.model import ModelSpec
from planner import rules
from planner.request import PlanRequest
from planner.rules import FLEXIBLE, SCHEDULES
from planner.slices import ends_can_spread, slice_counts

__all__ = [
    "BATCH_FIELDS",
    "ONE_CHUNK",
    "batch_ways",
    "deepest",
    "divisors",
    "is_sliced",
    "schedule_names",
    "sliced_schedules",
    "units",
]

# Columns of a layout that say how its batch runs through the pipeline.
BATCH_FIELDS = ("micro_batch_size", "num_microbatches", "vpp", "schedule", "slices", "group_size")

# Schedules with one chunk a rank; the others have several.
ONE_CHUNK = ("1f1b", "gpipe", "zb-h1", "zb-h2")


def units(model: ModelSpec) -> int:
    """How many of the repeating groups of layers that stages are dealt a model has: its layers, in most models."""
    return model.layer_pattern.repeats


@lru_cache(maxsize=4096)
def divisors(value: int, largest: int) -> NDArray[np.int64]:
    """The divisors of `value` up to `largest`, ascending; read only."""
    candidates = np.arange(1, int(value**0.5) + 1)
    small = candidates[value % candidates == 0]
    both = np.unique(np.concatenate([small, value // small]))
    found = np.asarray(both[both <= largest], dtype=np.int64)
    found.flags.writeable = False
    return found


def deepest(request: PlanRequest) -> int:
    """Pipeline ranks that a job can have at most."""
    return min(units(request.model), request.cluster.gpus)


def schedule_names(request: PlanRequest) -> tuple[str, ...]:
    """The names, among SCHEDULES, of what the request searches."""
    return tuple(dict.fromkeys("interleaved" if name == FLEXIBLE else name for name in request.schedules))


def is_sliced(request: PlanRequest) -> bool:
    """Whether some of the schedules that are searched cut sequences into slices."""
    return any(name in schedules.SLICED for name in request.schedules)


def batch_ways(
    request: PlanRequest, pp: int, dp: int, sliced: tuple[tuple[int, int, int, int], ...]
) -> NDArray[np.int64]:
    """int[ways, 6]: BATCH_FIELDS of each way of `dp` pipelines of `pp` ranks to work through the global batch.

    `sliced` are those of `sliced_schedules`.
    """
    per_rank = request.workload.global_batch // dp
    rows = []
    for size in divisors(per_rank, per_rank).tolist():
        count = per_rank // size
        ways = [*unsliced_schedules(request, pp, count), *(sliced if size == 1 else ())]
        rows += [(size, count, *way) for way in ways]
    return np.array(rows, dtype=np.int64).reshape(-1, len(BATCH_FIELDS))


def sliced_schedules(request: PlanRequest, tp: int, cp: int, pp: int) -> tuple[tuple[int, int, int, int], ...]:
    """(vpp, schedule index, slices, group size) of pipelines of `pp` ranks on slices of single sequences."""
    wanted = [name for name in request.schedules if name in schedules.SLICED]
    if pp == 1 or not wanted:
        return ()
    known = {"seq_len": request.workload.seq_len, "tp": tp, "cp": cp}
    choices: list[tuple[int, int, int, int]] = []
    for name in wanted:
        spread = name == "slimpipe"
        if spread and not ends_can_spread(request.model):
            continue
        depths = range(1, units(request.model) // pp + 1) if spread else (1,)
        for slices in slice_counts(request, pp, spread):
            if rules.legal({**known, "slices": slices}, "slices-divide-sequence"):
                choices += [(vpp, SCHEDULES.index(name), slices, 0) for vpp in depths]
    return tuple(choices)


def unsliced_schedules(request: PlanRequest, pp: int, num_microbatches: int) -> list[tuple[int, int, int, int]]:
    """(vpp, schedule index, slices, group size) of each way of the request's schedules to run `pp` ranks unsliced."""
    wanted = request.schedules
    if pp == 1:
        return [(1, SCHEDULES.index("1f1b"), 1, 0)] if "1f1b" in wanted else []
    choices = [(1, SCHEDULES.index(name), 1, 0) for name in ONE_CHUNK if name in wanted]
    most = (units(request.model) + 2) // pp
    for index, name in enumerate(SCHEDULES):
        if name == "interleaved":
            groups = _group_sizes(request, pp, num_microbatches)
            choices += [(vpp, index, 1, group) for group in groups for vpp in range(2, most + 1)]
        elif name == "breadth-first" and name in wanted:  # in one chunk it is GPipe
            choices += [(vpp, index, 1, 0) for vpp in range(2, most + 1)]
        elif name in schedules.V_SHAPED and name in wanted and most >= 2:
            choices += [(2, index, 1, 0)] * bool(schedules.schedule(name).legal(pp, 2, num_microbatches))
    return choices


def _group_sizes(request: PlanRequest, pp: int, num_microbatches: int) -> list[int]:
    """Sizes of the groups of interleaved micro-batches, 0 for the usual one: as many as ranks.

    From two groups' worth of ranks on, hops are hidden: of larger groups, which keep more alive, the smallest is taken,
    or the size that the request fixes.
    """
    usual = [0] if num_microbatches % pp == 0 and {"interleaved", FLEXIBLE}.intersection(request.schedules) else []
    if FLEXIBLE not in request.schedules:
        return usual
    if num_microbatches < pp:
        return [0]
    sizes = np.arange(pp + 1, num_microbatches + 1)
    legal = sizes[interleaved.legal(pp, 2, num_microbatches, group_size=sizes)]
    asked = request.fixed.get("group_size", 0)
    if asked > pp:
        return [asked] * bool(asked in legal)
    enough = np.searchsorted(legal, 2 * pp)
    return [*usual, *legal[: enough + 1].tolist()]

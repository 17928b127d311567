"""Why nothing fits: the layout that comes nearest, the stage that is fullest, and by how much it is over."""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.schedules import SLICED
from cost_models.specs.units import format_bytes
from planner import rules, space
from planner.document import MEMORY_CAUSES
from planner.errors import InfeasibleError
from planner.fitting import FULL, MARGIN, searched_sets, with_recompute
from planner.forbidden import violations
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts
from planner.not_searched import not_searched
from planner.offload import host_share_bytes
from planner.options import stage_rows
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.slices import SLICES_NEED
from planner.space import ONE_CHUNK, SCHEDULES, ZERO_MODES, Columns, schedule_names, take, units

__all__ = ["Shortage", "explain_infeasible", "nearest"]

ASK = (
    "what would fit is answered by --min-gpus, --max-seq-len, --max-global-batch and --largest-model FAMILY; "
    "`plan check` judges a configuration of your own"
)

LARGEST_CAUSES = 4
FRUGAL = ("1f1b", "v-half", "v-min", "seq1f1b", "slimpipe")
DEGREES = ("tp", "pp", "vpp", "dp", "micro_batch_size")
PIPELINE_RULES = ("degrees-multiply", "stages-have-layers", "batch-divides", "interleaving-needs-whole-groups")


@dataclass(frozen=True)
class Shortage:
    """What a GPU of the fullest stage of the least demanding layout needs, and what there is; bytes.

    `needed_bytes` is the sum of `causes` with the margin of the search.
    """

    stage: int
    needed_bytes: float
    capacity_bytes: float
    causes: Mapping[str, float]


def explain_infeasible(search: Search) -> InfeasibleError:
    """The error that tells why the search found no plan: the tightest constraint first."""
    request = search.request
    layouts = space.layouts(request, space.meshes(request))
    if not len(layouts["pp"]):
        return _nothing_legal(request)
    row, causes = nearest(search.model, layouts)
    needed, capacity = causes["device_bytes"] * (1.0 + MARGIN), request.capacity_bytes
    degrees = ", ".join(f"{name} {row[name]}" for name in DEGREES)
    largest = sorted(((causes[cause], cause) for cause in MEMORY_CAUSES), reverse=True)[:LARGEST_CAUSES]
    filled = ", ".join(f"{cause.replace('_', ' ')} {format_bytes(size)}" for size, cause in largest)
    return InfeasibleError(
        f"nothing fits: of {len(layouts['pp']):,} layouts the least demanding still needs {format_bytes(needed)} on a "
        f"GPU of stage {row['position']} ({MARGIN:.0%} margin included); usable are {format_bytes(capacity)}: "
        f"{format_bytes(needed - capacity)} too much",
        f"that layout: {degrees}, ZeRO-{row['zero_stage']}, layers split evenly, "
        f"{'every layer' if row['recompute'] == FULL else 'nothing'} recomputed; of the stage: {filled}",
        f"with {format_bytes(host_share_bytes(request))} of host memory a GPU, its equal share of a node, "
        "offload does not make it fit either",
        f"not searched: {'; '.join(not_searched(request))}",
        ASK,
        shortage=Shortage(row["position"], needed, capacity, {cause: causes[cause] for cause in MEMORY_CAUSES}),
    )


def _nothing_legal(request: PlanRequest) -> InfeasibleError:
    """The error that tells which rules the smallest pipelines of the schedules break; any job can run 1f1b.

    Where the target can express no job like this, its rules are told.
    """
    alone = {**space.known_values(request), "tp": 1, "cp": 1, "pp": 1, "dp": 1, "sequence_parallel": 0}
    refused = rules.refusals(alone, request.target, "mesh")
    if refused:
        told = (f"{message} ({name})" for name, message in refused)
        return InfeasibleError(f"{request.target} can express no plan of this job", *told)
    names = schedule_names(request)
    smallest = [(name, *_smallest_pipeline(request, name)) for name in names]
    gpus = f"{request.cluster.gpus:,} GPU{'s' * (request.cluster.gpus != 1)}"
    schedules = "schedule" if len(names) == 1 else "schedules"
    return InfeasibleError(
        f"no layout of {gpus} is legal for the {', '.join(request.schedules)} {schedules}"
        f"{'' if request.target == 'any' else f' and can be expressed by {request.target}'}",
        *(
            f"the smallest {name} pipeline is {degrees}: {told}"
            for name, degrees, broken in smallest
            for told in broken
        ),
        *((SLICES_NEED,) if space.is_sliced(request) else ()),
    )


def _smallest_pipeline(request: PlanRequest, schedule: str) -> tuple[str, list[str]]:
    """The degrees of the smallest pipeline of a schedule, and what the rules that it breaks say."""
    chunks = 1 if schedule in (*ONE_CHUNK, *SLICED) else 2
    smallest = {"tp": 1, "cp": 1, "pp": 2, "vpp": chunks, "dp": 1}
    batch = request.workload.global_batch
    others = {
        "gpus": request.cluster.gpus,
        "layers": units(request.model),
        "global_batch": batch,
        "micro_batch_size": 1,
        "num_microbatches": batch,
        "schedule": SCHEDULES.index(schedule),
    }
    flexible = rules.FLEXIBLE in request.schedules
    broken = [message for _, message in violations({**smallest, **others}, *PIPELINE_RULES, flexible=flexible)]
    return ", ".join(f"{name} {value}" for name, value in smallest.items() if name in DEGREES), broken


def _least_demanding(layouts: Columns) -> NDArray[np.bool_]:
    """Layouts among which the least demanding one is: larger micro-batches and most other schedules only keep more."""
    smallest = layouts["micro_batch_size"] == 1
    plain = np.isin(layouts["schedule"], [SCHEDULES.index(name) for name in FRUGAL])
    for chosen in (smallest & plain, smallest):
        if chosen.any():
            return np.asarray(chosen)
    return np.ones_like(smallest)


def nearest(model: CostModel, layouts: Columns) -> tuple[dict[str, int], dict[str, float]]:
    """The fullest stage of the layout whose fullest stage needs least, at its best options; its bytes by cause."""
    layouts = take(layouts, _least_demanding(layouts))
    rows = _even_stages(model, layouts)
    costs = LayoutCosts.of(model, layouts)
    trials = []
    for zero, recompute in itertools.product(_zero_modes(model), _recompute_sets(model)):
        trial = {**rows, "zero": np.full(len(rows["layout"]), zero)}
        trials.append(with_recompute(trial, recompute, min(recompute, 1) * rows["layers"]))
    needed = np.stack([model.stages(costs, trial, "device")["device_bytes"] for trial in trials])
    fullest = np.zeros(len(costs))
    np.maximum.at(fullest, rows["layout"], needed.min(axis=0))
    nearest = int(np.argmin(fullest))
    of_layout = np.where(rows["layout"] == nearest, needed.min(axis=0), -1.0)
    stage = int(np.argmax(of_layout))
    best = take(trials[int(np.argmin(needed[:, stage]))], [stage])
    causes = {name: float(column[0]) for name, column in model.stages(costs, best, "all").items()}
    named: dict[str, Any] = {**take(layouts, nearest), **take(best, 0)}
    named["zero_stage"] = ZERO_MODES["zero_stage"][named["zero"]]
    return {name: int(value) for name, value in named.items()}, causes


def _zero_modes(model: CostModel) -> list[int]:
    """Indices of the ZeRO modes that the request allows."""
    wanted = model.request.zero_stage
    return [mode for mode, stage in enumerate(ZERO_MODES["zero_stage"].tolist()) if wanted in (None, stage)]


def _recompute_sets(model: CostModel) -> list[int]:
    """Nothing and everything where the request allows them, for every other set lies between; else all it allows."""
    allowed = searched_sets(model)
    return [index for index in allowed if index in (0, FULL)] or list(allowed)


def _even_stages(model: CostModel, layouts: Columns) -> dict[str, NDArray[Any]]:
    """Every stage of every layout, with an even share of the layers; the last ranks hold the rest."""
    pp = layouts["pp"]
    layout = np.repeat(np.arange(len(pp)), pp)
    position = np.arange(len(layout)) - np.repeat(np.cumsum(pp) - pp, pp)
    share, rest = np.divmod(units(model.request.model), pp[layout])
    # The last ranks keep fewest micro-batches alive: they can best hold a layer more.
    layers = share + (position >= pp[layout] - rest)
    return stage_rows(layouts, {"layout": layout, "position": position, "layers": layers}, model.request.recipe)

"""Stages of different sizes: GPUs, TP and DP of each pipeline rank by itself (Mist, EuroSys '25, stage partition).

All stages work on the same sequences at a time: each of the dp data-parallel ranks of a stage takes `sequences / dp`. A
stage costs what the homogeneous layout of its degrees costs; between stages the side with fewer GPUs has more of the
boundary tensor to send or to receive, and a hop takes as long as that. Sizes are such that whole nodes can be filled.

1F1B of dense models, all GPUs in use. Options, dynamic program (layers and GPUs are dealt at once), cutting planes and
replay are those of the search. What is found is told beside the plan: a document's plan has one mesh for all stages.
"""

import itertools
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, replace
from functools import partial
from math import inf
from time import monotonic

import numpy as np

from planner import space
from planner.document import HeterogeneousPlan, HeterogeneousStage
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts
from planner.mesh_pipeline import MeshPlan, StageKind, fastest
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import LAYOUT_FIELDS, SCHEDULES, divisors

__all__ = ["MOST_STAGES", "best_mesh_plan", "best_of", "beside", "mesh_layouts", "stage_layouts", "stage_sizes", "told"]

# Pipelines of more ranks are not looked at: what sizes differ by is most of what a stage has where stages are few.
MOST_STAGES = 8

Outcome = tuple[MeshPlan | None, float]


def stage_sizes(request: PlanRequest) -> list[int]:
    """GPUs that a stage can have: any on one node, else nodes and parts of one, each a multiple of the one before."""
    node, gpus = request.cluster.gpus_per_node, request.cluster.gpus
    if gpus <= node:
        return list(range(1, gpus))
    parts = [1]
    for size in divisors(node, node).tolist():
        if size % parts[-1] == 0 and size > parts[-1]:
            parts.append(size)
    return [*parts, *range(2 * node, gpus, node)]


def mesh_layouts(request: PlanRequest, pp: int, sequences: int) -> space.Columns:
    """The homogeneous layouts whose stages can be stages here: of every size, TP and DP, `sequences` at a time."""
    return stage_layouts(
        request, pp, sequences, [size for size in stage_sizes(request) if size <= request.cluster.gpus - pp + 1]
    )


def stage_layouts(request: PlanRequest, pp: int, sequences: int, sizes: Iterable[int]) -> space.Columns:
    """The homogeneous layouts of some sizes of a stage, of every TP and DP, `sequences` at a time."""
    tps = np.unique(space.meshes(request)["tp"]).tolist()
    degrees = [(tp, size // tp) for size in sizes for tp in tps if size % tp == 0 and sequences % (size // tp) == 0]
    tp, dp = np.array(degrees, dtype=np.int64).reshape(-1, 2).T
    ones = np.ones_like(tp)
    columns = {
        **{name: ones for name in LAYOUT_FIELDS},
        **{name: 0 * ones for name in ("cp_ring", "rank_order", "group_size")},
        "tp": tp,
        "sequence_parallel": (tp > 1) * int(space.sequence_parallel(request)),
        "dp": dp,
        "dp_shard": dp,
        "pp": pp * ones,
        "micro_batch_size": sequences // dp,
        "num_microbatches": request.workload.global_batch // sequences * ones,
        "schedule": SCHEDULES.index("1f1b") * ones,
    }
    whole = {"world": request.cluster.gpus * ones, "pp_stride": max(request.cluster.gpus // pp, 1) * ones}
    return space.with_strides(columns) | whole


def beside(search: Search) -> HeterogeneousPlan | None:
    """The fastest pipeline of stages of different sizes that beats the search's plan by the gap; None without one."""
    best, request = search.best, search.request
    if "meshes" not in request.search or best is None or search.limit_reached:
        return None
    cutoff_s = best.objective_s * (1.0 - request.gap)
    plan = best_mesh_plan(CostModel(request), cutoff_s, search.seconds_left)
    return told(plan, best.objective_s) if plan is not None else None


def told(plan: MeshPlan, beaten_s: float) -> HeterogeneousPlan:
    """The pipeline as documents have it, beside a plan that takes `beaten_s` a step."""
    return HeterogeneousPlan(
        stages=tuple(HeterogeneousStage(gpus=stage.gpus, **asdict(stage)) for stage in plan.stages),
        num_microbatches=plan.num_microbatches,
        step_time_s=plan.step_s,
        bound_s=plan.bound_s,
        faster_by=1.0 - plan.step_s / beaten_s,
    )


def best_mesh_plan(model: CostModel, cutoff_s: float = inf, seconds: float = inf) -> MeshPlan | None:
    """The fastest pipeline under the cutoff, to within the request's gap; None where there is none, or with experts.

    After `seconds` of wall time the best so far is returned, and nothing is proven.
    """
    return best_of(_spaces(model), cutoff_s, model.request.gap, seconds)


def best_of(
    spaces: Iterable[Callable[[float], Outcome]], cutoff_s: float, gap: float, seconds: float
) -> MeshPlan | None:
    """The fastest pipeline of several spaces under the cutoff, to within the gap; None where there is none.

    A space is called with the limit that a pipeline of it must stay under, and answers as `fastest` does.
    """
    deadline = monotonic() + seconds
    best: MeshPlan | None = None
    bound_s = inf
    for searched in spaces:
        limit_s = min(cutoff_s, best.step_s * (1.0 - gap) if best else inf)
        if monotonic() > deadline:
            bound_s = 0.0
            break
        found, least_s = searched(limit_s)
        bound_s = min(bound_s, least_s)
        best = found or best
    return replace(best, bound_s=min(bound_s, best.step_s)) if best else None


def _spaces(model: CostModel) -> Iterator[Callable[[float], Outcome]]:
    """The pipelines of every number of stages and of sequences at a time."""
    request = model.request
    if request.model.moe is not None:
        return
    most = min(space.deepest(request), MOST_STAGES)
    batches = divisors(request.workload.global_batch, request.workload.global_batch).tolist()
    for pp, sequences in itertools.product(range(2, most + 1), batches):
        columns = mesh_layouts(request, pp, sequences)
        if len(columns["tp"]):
            # Stages may be placed anywhere: every hop is priced at the tier that spans the cluster.
            reach = max(request.cluster.gpus // 2, 1)
            kind = StageKind(model, LayoutCosts.of(model, columns), range(pp), reach)
            yield partial(_under, kind)


def _under(kind: StageKind, limit_s: float) -> Outcome:
    """As `fastest`, of stages that share out all GPUs; nothing is looked at where the work alone is over the limit."""
    request = kind.model.request
    # All layers at the size that makes most of its GPUs, shared out over all of them.
    if kind.least_gpu_s * space.units(request.model) / request.cluster.gpus >= limit_s:
        return None, limit_s
    return fastest([kind], request.cluster.gpus, limit_s, request.gap)

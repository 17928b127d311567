"""Stages of different sizes: GPUs, TP and DP of each pipeline rank by itself (Mist, EuroSys '25, stage partition).

All stages work on the same sequences at a time: each of the dp data-parallel ranks of a stage takes `sequences / dp`. A
stage costs what the homogeneous layout of its degrees costs; between stages the side with fewer GPUs has more of the
boundary tensor to send or to receive, and a hop takes as long as that. Stages may be placed anywhere, so that every hop
is priced at the tier that spans the cluster. Sizes are such that whole nodes can be filled with them.

1F1B of dense models, all GPUs in use. Options, dynamic program (layers and GPUs are dealt at once), cutting planes and
replay are those of the search. What is found is told beside the plan: a document's plan has one mesh for all stages.
"""

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from math import inf
from time import monotonic
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.schedules.critical_path import critical_path
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from planner import space
from planner.document import HeterogeneousPlan, HeterogeneousStage
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts
from planner.options import Rows, positions, stage_options
from planner.predict import MICRO_BATCH_OUTPUTS, CostModel
from planner.request import PlanRequest
from planner.space import LAYOUT_FIELDS, SCHEDULES, ZERO_MODES, divisors, take
from solver.assignment import AssignmentProblem, Path
from solver.chain import ChainProblem
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost

__all__ = ["MeshPipeline", "MeshPlan", "MeshStage", "best_mesh_plan", "beside", "mesh_layouts", "stage_sizes"]

Array = NDArray[np.float64]
Choice = NDArray[np.int64]

# Pipelines of more ranks are not looked at: what sizes differ by is most of what a stage has where stages are few.
MOST_STAGES = 8
FEATURES = (*MICRO_BATCH_OUTPUTS, "first_s", "last_s", "hop_s")


@dataclass(frozen=True)
class MeshStage:
    """One pipeline rank: its share of the model, its GPUs, and how it shards and recomputes."""

    layers: int
    tp: int
    dp: int
    micro_batch_size: int
    zero_stage: int
    recompute_layers: int
    device_bytes: float

    @property
    def gpus(self) -> int:
        """GPUs of the stage."""
        return self.tp * self.dp


@dataclass(frozen=True)
class MeshPlan:
    """The fastest pipeline found; no pipeline of this space is faster than `bound_s`."""

    stages: tuple[MeshStage, ...]
    num_microbatches: int
    step_s: float
    bound_s: float


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
    tps = np.unique(space.meshes(request)["tp"]).tolist()
    sizes = [size for size in stage_sizes(request) if size <= request.cluster.gpus - pp + 1]
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


@dataclass(frozen=True, eq=False)
class MeshPipeline:
    """Pipelines of so many stages on so many sequences at a time: their options, one row each, and what they cost."""

    model: CostModel
    costs: LayoutCosts
    options: Rows

    @classmethod
    def of(cls, model: CostModel, costs: LayoutCosts, budget_s: float = inf) -> "MeshPipeline":
        """All options on some of `mesh_layouts` whose stage by itself can be done within the budget."""
        columns = costs.layouts
        pp, m = int(columns["pp"][0]), columns["num_microbatches"]
        most = space.units(model.request.model) - pp + 1
        within = np.floor(np.minimum(budget_s / (m * costs.unit_s["layer"]) * (1.0 + 1e-12), most)).astype(np.int64)
        upper = np.repeat(within[:, None], pp, axis=1)
        options = stage_options(model, costs, positions(np.ones_like(upper), upper))
        work = m[options["layout"]] * sum(options[name] for name in MICRO_BATCH_OUTPUTS)
        return cls(model, costs, take(options, work + options["first_s"] + options["last_s"] < budget_s))

    @property
    def pp(self) -> int:
        """Stages."""
        return int(self.costs.layouts["pp"][0])

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step."""
        return int(self.costs.layouts["num_microbatches"][0])

    @cached_property
    def gpus(self) -> NDArray[np.int64]:
        """GPUs of every option's stage."""
        layouts = self.costs.layouts
        return np.asarray((layouts["tp"] * layouts["dp"])[self.options["layout"]])

    @cached_property
    def hop_s(self) -> Array:
        """Seconds of a hop that is held up by the options' own side of it, float[options]."""
        request, reach = self.model.request, max(self.model.request.cluster.gpus // 2, 1)
        sizes = self.costs.per_micro_batch("boundary_bytes")
        hops = [hop_seconds(request.cluster, request.profile, float(size), reach, 2)[0] for size in sizes]
        return np.array(hops)[self.options["layout"]]

    @property
    def complete(self) -> bool:
        """Whether every stage has an option."""
        return len(np.unique(self.options["position"])) == self.pp

    @cached_property
    def global_floor_s(self) -> float:
        """Lower bound of the global part: at every stage some option must be taken."""
        least = np.full(self.pp, inf)
        np.minimum.at(least, self.options["position"], self.options["global_s"])
        return float(least.max())

    @cached_property
    def chain(self) -> ChainProblem:
        """The lower bound of 1F1B as a chain of stages that share out the layers and the GPUs."""
        terms = schedules.schedule("1f1b").bound_terms(self.num_microbatches, self._times(self.hop_s))
        return ChainProblem(
            stage=self.options["position"],
            units=self.options["layers"],
            work=terms.work_s,
            pass_through=terms.pass_s,
            edge=terms.edge_s,
            num_stages=self.pp,
            total_units=space.units(self.model.request.model),
            resource=self.gpus,
            total_resource=self.model.request.cluster.gpus,
        )

    def step_s(self, choice: Choice) -> float:
        """The step time of record of a choice: 1F1B replayed, plus the global part."""
        span = simulate(self._table, self._times(self._hops(choice), choice)).span_s
        return float(span) + float(self.options["global_s"][choice].max())

    def assignment(self) -> AssignmentProblem:
        """The exact problem, opened with the path of the bound that enters at stage 0 and turns at the last."""
        features = np.column_stack([*(self.options[name] for name in FEATURES[:-1]), self.hop_s])
        first = np.zeros((self.pp, len(FEATURES)))
        first[-1, : len(MICRO_BATCH_OUTPUTS)] = self.num_microbatches
        return AssignmentProblem(
            stage=self.options["position"],
            units=self.options["layers"],
            features=features,
            num_stages=self.pp,
            total_units=space.units(self.model.request.model),
            paths=(Path(first),),
            global_value=self.options["global_s"],
            resource=self.gpus,
            total_resource=self.model.request.cluster.gpus,
        )

    def critical_path(self, choice: Choice) -> Path:
        """The longest path of a choice's replay: a hop counts on the side that holds it up, a bound for all others."""
        path = critical_path(self._table, self._times(self._hops(choice), choice))
        coefficients = np.zeros((self.pp, len(FEATURES)))
        for column, name in enumerate(MICRO_BATCH_OUTPUTS):
            coefficients[:, column] = getattr(path, name.removesuffix("_s"))[:, 0]
        coefficients[:, -3], coefficients[:, -2] = path.first, path.last
        own = self.hop_s[choice]
        for rank in range(self.pp - 1):
            slower = rank if own[rank] >= own[rank + 1] else rank + 1
            coefficients[slower, -1] += path.hop[rank]
        return Path(coefficients)

    def stages(self, choice: Choice) -> tuple[MeshStage, ...]:
        """The stages of a choice."""
        rows = take(self.options, choice)
        layouts = take(self.costs.layouts, rows["layout"])
        knobs = (ZERO_MODES["zero_stage"][rows["zero"]], rows["recompute_layers"], rows["device_bytes"])
        columns = (rows["layers"], *(layouts[name] for name in ("tp", "dp", "micro_batch_size")), *knobs)
        return tuple(MeshStage(*of) for of in zip(*(column.tolist() for column in columns), strict=True))

    @property
    def _table(self) -> Any:
        return schedules.actions("1f1b", self.pp, 1, self.num_microbatches)

    def _hops(self, choice: Choice) -> Array:
        """Seconds from each stage to the next: as long as the slower side needs. There is none behind the last."""
        own = self.hop_s[choice]
        return np.append(np.maximum(own[:-1], own[1:]), 0.0)

    def _times(self, hop_s: Array, rows: Any = slice(None)) -> StageTimes:
        seconds = (self.options[name][rows][:, None] for name in MICRO_BATCH_OUTPUTS)
        edges = {name: self.options[name][rows] for name in ("first_s", "last_s")}
        return StageTimes.of(*seconds, **edges, hop_s=hop_s)


def beside(search: Search) -> HeterogeneousPlan | None:
    """The fastest pipeline of stages of different sizes that beats the search's plan by the gap; None without one."""
    best, request = search.best, search.request
    if "meshes" not in request.search or best is None or search.limit_reached:
        return None
    cutoff_s = best.objective_s * (1.0 - request.gap)
    plan = best_mesh_plan(CostModel(request), cutoff_s, search.seconds_left)
    if plan is None:
        return None
    return HeterogeneousPlan(
        stages=tuple(HeterogeneousStage(gpus=stage.gpus, **asdict(stage)) for stage in plan.stages),
        num_microbatches=plan.num_microbatches,
        step_time_s=plan.step_s,
        bound_s=plan.bound_s,
        faster_by=1.0 - plan.step_s / best.objective_s,
    )


def best_mesh_plan(model: CostModel, cutoff_s: float = inf, seconds: float = inf) -> MeshPlan | None:
    """The fastest pipeline under the cutoff, to within the request's gap; None where there is none, or with experts.

    After `seconds` of wall time the best so far is returned, and nothing is proven.
    """
    request, deadline = model.request, monotonic() + seconds
    best: MeshPlan | None = None
    bound_s = inf
    for costs in _spaces(model):
        limit_s = min(cutoff_s, best.step_s * (1.0 - request.gap) if best else inf)
        if monotonic() > deadline:
            bound_s = 0.0
            break
        found, least_s = _fastest(model, costs, limit_s)
        bound_s = min(bound_s, least_s)
        best = found or best
    return replace(best, bound_s=min(bound_s, best.step_s)) if best else None


def _spaces(model: CostModel) -> Iterator[LayoutCosts]:
    """The layouts of stages for every number of these and of sequences at a time."""
    request = model.request
    if request.model.moe is not None:
        return
    most = min(space.deepest(request), MOST_STAGES)
    batches = divisors(request.workload.global_batch, request.workload.global_batch).tolist()
    for pp, sequences in itertools.product(range(2, most + 1), batches):
        columns = mesh_layouts(request, pp, sequences)
        if len(columns["tp"]):
            yield LayoutCosts.of(model, columns)


def _fastest(model: CostModel, costs: LayoutCosts, limit_s: float) -> tuple[MeshPlan | None, float]:
    """The fastest pipeline under the limit, None where there is none; and what none is faster than."""
    if _least_s(model, costs) >= limit_s:
        return None, limit_s
    pipeline = MeshPipeline.of(model, costs, limit_s)
    if not pipeline.complete:
        return None, limit_s
    floor_s = pipeline.global_floor_s
    start = minimum_cost(pipeline.chain, limit_s - floor_s)
    if not start.feasible:
        return None, limit_s

    def replay(choice: Choice) -> tuple[float, Path]:
        return pipeline.step_s(choice), pipeline.critical_path(choice)

    gap = model.request.gap / 2
    result = cutting_planes(pipeline.assignment(), replay, gap=gap, cutoff=limit_s, start=start.choice)
    bound_s = min(max(result.bound, start.bound + floor_s), limit_s)
    if not len(result.choice) or result.objective >= limit_s:
        return None, bound_s
    return MeshPlan(pipeline.stages(result.choice), pipeline.num_microbatches, result.objective, bound_s), bound_s


def _least_s(model: CostModel, costs: LayoutCosts) -> float:
    """Lower bound of the step: all layers at the size that makes most of its GPUs, shared out over all of them."""
    layouts, request = costs.layouts, model.request
    gpu_seconds = layouts["tp"] * layouts["dp"] * layouts["num_microbatches"] * costs.unit_s["layer"]
    return float(gpu_seconds.min()) * space.units(request.model) / request.cluster.gpus

"""Pipelines of stages that have meshes of their own: what their stages can be, what one costs, what none is below.

A stage costs what the homogeneous layout of its degrees costs on its GPUs; between stages the side with fewer GPUs, or
with slower links, holds up the hop. The schedule is 1F1B; its dynamic program, cutting planes and replay are those of
the search.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.schedules.critical_path import PathCoefficients, span_and_path
from cost_models.schedules.one_f_one_b import window_paths
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from planner import space
from planner.fitting import Rows
from planner.layout_costs import LayoutCosts
from planner.options import positions, stage_options
from planner.predict import MICRO_BATCH_OUTPUTS, CostModel
from planner.space import ZERO_MODES, joined, take
from solver.assignment import AssignmentProblem, Path
from solver.chain import ChainProblem
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost

__all__ = ["MeshPipeline", "MeshPlan", "MeshStage", "StageKind", "fastest"]

Array = NDArray[np.float64]
Choice = NDArray[np.int64]
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
    gpu: str
    """The kind of its GPUs."""

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


@dataclass(frozen=True, eq=False)
class StageKind:
    """What stages on one kind of GPUs can be: layouts with their costs, the pipeline ranks they may be, their hops."""

    model: CostModel
    costs: LayoutCosts
    ranks: range
    reach: int
    """GPUs between neighbours of a hop: it takes the innermost tier that holds that many and as many again."""

    @property
    def least_gpu_s(self) -> float:
        """GPU-seconds of a step that one repeating group of layers takes at least, forward and backward."""
        layouts = self.costs.layouts
        each = layouts["tp"] * layouts["dp"] * layouts["num_microbatches"] * self.costs.unit_s["layer"]
        return float(each.min())

    def options(self, budget_s: float) -> Rows:
        """All options whose stage by itself can be done within the budget, with their GPUs, degrees and hops."""
        columns = self.costs.layouts
        pp, m = int(columns["pp"][0]), columns["num_microbatches"]
        most = space.units(self.model.request.model) - pp + 1
        layer_s = m * self.costs.unit_s["layer"]
        within = np.floor(np.minimum(budget_s / layer_s * (1.0 + 1e-12), most)).astype(np.int64)
        upper = np.zeros((len(within), pp), dtype=np.int64)
        upper[:, self.ranks.start : self.ranks.stop] = within[:, None]
        rows = stage_options(self.model, self.costs, positions(np.ones_like(upper), upper))
        work = m[rows["layout"]] * sum(rows[name] for name in MICRO_BATCH_OUTPUTS)
        rows = take(rows, work + rows["first_s"] + rows["last_s"] < budget_s)
        degrees = {name: columns[name][rows["layout"]] for name in ("tp", "dp", "micro_batch_size")}
        return {**rows, **degrees, "gpus": degrees["tp"] * degrees["dp"], "hop_s": self._hop_s[rows["layout"]]}

    @property
    def _hop_s(self) -> Array:
        """Seconds of a hop that is held up by the layouts' own side of it, float[layouts]."""
        request = self.model.request
        sizes = self.costs.per_micro_batch("boundary_bytes").tolist()
        hops = [hop_seconds(request.cluster, request.profile, size, self.reach, 2)[0] for size in sizes]
        return np.array(hops)


@dataclass(frozen=True, eq=False)
class MeshPipeline:
    """Pipelines of so many stages on so many sequences at a time: their options, one row each, and what they cost."""

    kinds: Sequence[StageKind]
    options: Rows
    """Of all kinds below each other; `kind` is the index of each one's."""
    total_gpus: int | None
    """What the stages share out; None where each kind's stages have a size of their own."""

    @classmethod
    def of(cls, kinds: Sequence[StageKind], total_gpus: int | None, budget_s: float = inf) -> "MeshPipeline":
        """All options of some kinds of stages that can be done within the budget."""
        rows = [kind.options(budget_s) for kind in kinds]
        marked = [part | {"kind": np.full(len(part["layout"]), index)} for index, part in enumerate(rows)]
        return cls(kinds, joined(marked), total_gpus)

    @property
    def pp(self) -> int:
        """Stages."""
        return int(self.kinds[0].costs.layouts["pp"][0])

    @property
    def num_microbatches(self) -> int:
        """Micro-batches of a step."""
        return int(self.kinds[0].costs.layouts["num_microbatches"][0])

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
        terms = schedules.schedule("1f1b").bound_terms(self.num_microbatches, self._times(self.options["hop_s"]))
        return ChainProblem(
            stage=self.options["position"],
            units=self.options["layers"],
            work=terms.work_s,
            pass_through=terms.pass_s,
            edge=terms.edge_s,
            num_stages=self.pp,
            total_units=self._units,
            **self._shared,
        )

    def step_s(self, choice: Choice) -> float:
        """The step time of record of a choice: 1F1B replayed, plus the global part."""
        span = simulate(self._table, self._times(self._hops(choice), choice)).span_s
        return float(span) + float(self.options["global_s"][choice].max())

    def assignment(self) -> AssignmentProblem:
        """The exact problem, opened with the path of the bound that enters at stage 0 and turns at the last."""
        first = np.zeros((self.pp, len(FEATURES)))
        first[-1, : len(MICRO_BATCH_OUTPUTS)] = self.num_microbatches
        return AssignmentProblem(
            stage=self.options["position"],
            units=self.options["layers"],
            features=np.column_stack([self.options[name] for name in FEATURES]),
            num_stages=self.pp,
            total_units=self._units,
            paths=(Path(first),),
            global_value=self.options["global_s"],
            **self._shared,
        )

    def step_and_paths(self, choice: Choice) -> tuple[float, tuple[Path, ...]]:
        """The step of a choice, and paths that bound every choice: the longest of its replay, and others like it."""
        times = self._times(self._hops(choice), choice)
        span_s, path = span_and_path(self._table, times)
        step_s = float(span_s) + float(self.options["global_s"][choice].max())
        paths = (path, *window_paths(self.num_microbatches, times).each())
        return step_s, tuple(self._path(each, choice) for each in paths)

    def _path(self, path: PathCoefficients, choice: Choice) -> Path:
        """A path over the features: a hop counts on the side that holds it up at a choice, a bound for all others."""
        coefficients = np.zeros((self.pp, len(FEATURES)))
        for column, name in enumerate(MICRO_BATCH_OUTPUTS):
            coefficients[:, column] = getattr(path, name.removesuffix("_s"))[:, 0]
        coefficients[:, -3], coefficients[:, -2] = path.first, path.last
        own = self.options["hop_s"][choice]
        for rank in range(self.pp - 1):
            slower = rank if own[rank] >= own[rank + 1] else rank + 1
            coefficients[slower, -1] += path.hop[rank]
        return Path(coefficients)

    def stages(self, choice: Choice) -> tuple[MeshStage, ...]:
        """The stages of a choice."""
        rows = take(self.options, choice)
        degrees = (rows[name] for name in ("layers", "tp", "dp", "micro_batch_size"))
        knobs = (ZERO_MODES["zero_stage"][rows["zero"]], rows["recompute_layers"], rows["device_bytes"])
        names = [self.kinds[kind].model.request.cluster.gpu.name for kind in rows["kind"].tolist()]
        columns = (column.tolist() for column in (*degrees, *knobs))
        return tuple(MeshStage(*of) for of in zip(*columns, names, strict=True))

    @property
    def _units(self) -> int:
        return space.units(self.kinds[0].model.request.model)

    @property
    def _shared(self) -> dict[str, Any]:
        """The GPUs that the stages share out, as solvers take them."""
        return {"resource": self.options["gpus"], "total_resource": self.total_gpus} if self.total_gpus else {}

    @property
    def _table(self) -> Any:
        return schedules.actions("1f1b", self.pp, 1, self.num_microbatches)

    def _hops(self, choice: Choice) -> Array:
        """Seconds from each stage to the next: as long as the slower side needs. There is none behind the last."""
        own = self.options["hop_s"][choice]
        return np.append(np.maximum(own[:-1], own[1:]), 0.0)

    def _times(self, hop_s: Array, rows: Any = slice(None)) -> StageTimes:
        seconds = (self.options[name][rows][:, None] for name in MICRO_BATCH_OUTPUTS)
        edges = {name: self.options[name][rows] for name in ("first_s", "last_s")}
        return StageTimes.of(*seconds, **edges, hop_s=hop_s)


def fastest(
    kinds: Sequence[StageKind], total_gpus: int | None, limit_s: float, gap: float
) -> tuple[MeshPlan | None, float]:
    """The fastest pipeline under the limit, to within the gap, None where there is none; and what none is faster than.

    With `total_gpus` the stages share out so many, without each layout of a kind has the size of its stage.
    """
    pipeline = MeshPipeline.of(kinds, total_gpus, limit_s)
    if not pipeline.complete:
        return None, limit_s
    floor_s = pipeline.global_floor_s
    start = minimum_cost(pipeline.chain, limit_s - floor_s)
    if not start.feasible:
        return None, limit_s

    result = cutting_planes(
        pipeline.assignment(), pipeline.step_and_paths, gap=gap / 2, cutoff=limit_s, start=start.choice
    )
    bound_s = min(max(result.bound, start.bound + floor_s), limit_s)
    if not len(result.choice) or result.objective >= limit_s:
        return None, bound_s
    return MeshPlan(pipeline.stages(result.choice), pipeline.num_microbatches, result.objective, bound_s), bound_s

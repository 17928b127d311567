"""One layout's stages as a solver sees them: options as rows, and the step that a choice of them takes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.schedules.critical_path import PathCoefficients, span_and_path
from cost_models.schedules.one_f_one_b import window_paths
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import ActionTable
from cost_models.schedules.times import StageTimes
from cost_models.schedules.whole_backward import with_whole_backwards
from planner import hosts
from planner.fitting import Rows
from planner.layout_costs import LayoutCosts
from planner.live import cut_of
from planner.options import CHUNK_KINDS, TABLE_FIELDS, chunk_rows
from planner.predict import ATTENTION_OUTPUTS, MICRO_BATCH_OUTPUTS, CostModel
from planner.space import SCHEDULES, chunk_layers, take, units
from solver.assignment import AssignmentProblem, Path, SideConstraint
from solver.chain import ChainProblem
from solver.dynamic_program import minimum_cost, minimum_sum

__all__ = ["Pipeline"]

Array = NDArray[np.float64]

# By how much a stage is made slower to see which paths it would make the longest, and actions of all such replays.
SLOWER, MOST_PROBED = 0.2, 500_000


@dataclass(frozen=True, eq=False)
class Pipeline:
    """One layout: its options, their seconds by chunk, and the hops between its stages.

    `options` are the rows of `stage_options` for layout number `index` of `costs`. A choice is one row a stage.
    """

    model: CostModel
    costs: LayoutCosts
    index: int
    options: Rows

    def __getstate__(self) -> dict[str, Any]:
        """What goes from one process to another: not the model, which each has."""
        return {"model": None, "costs": self.costs.take([self.index]), "index": 0, "options": self._alone}

    @property
    def _alone(self) -> Rows:
        """The options, of the only layout that there is."""
        return {**self.options, "layout": np.zeros_like(self.options["layout"])}

    @cached_property
    def layout(self) -> dict[str, int]:
        """The layout's columns as plain integers, its bounds left out."""
        columns = self.costs.layouts.items()
        return {name: int(column[self.index]) for name, column in columns if column.dtype.kind == "i"}

    @property
    def schedule(self) -> str:
        """Name of the pipeline schedule."""
        return SCHEDULES[self.layout["schedule"]]

    @property
    def table(self) -> ActionTable:
        """The action table that the layout runs."""
        degrees = (self.layout[name] for name in ("pp", "vpp", "num_microbatches"))
        return schedules.actions(self.schedule, *degrees, **self._cut)

    @property
    def table_fields(self) -> tuple[int, ...]:
        """What the action table is made from: layouts that agree in it run the same."""
        return tuple(self.layout[name] for name in TABLE_FIELDS)

    @property
    def _cut(self) -> dict[str, int]:
        return cut_of(self.schedule, self.layout["group_size"], self.layout["slices"])

    @cached_property
    def hop_s(self) -> Array:
        """Seconds from each pipeline rank to the next, float[pp]."""
        request = self.model.request
        boundary = float(self.costs.per_micro_batch("boundary_bytes")[self.index])
        return hop_seconds(request.cluster, request.profile, boundary, self.layout["pp_stride"], self.layout["pp"])

    @cached_property
    def chunk_s(self) -> dict[str, Array]:
        """Seconds of one micro-batch in every chunk of every option, float[options, vpp] by output name.

        With the attention among them that grows from slice to slice, which schedules of several chunks spread evenly.
        Where frameworks do not split the backward of the first stage, it is whole there.
        """
        seconds = self._own_chunk_s
        if self.model.request.recipe.splits_first_stage or self.schedule not in schedules.SPLIT:
            return seconds
        first = (self.options["position"][:, None] == 0) & (np.arange(self.layout["vpp"]) == 0)
        return with_whole_backwards(seconds, first)

    @property
    def _own_chunk_s(self) -> dict[str, Array]:
        """The same, where every backward that is split is so on all stages."""
        vpp = self.layout["vpp"]
        if vpp == 1:
            names = (*MICRO_BATCH_OUTPUTS, *(name for name in ATTENTION_OUTPUTS if name in self.options))
            return {name: self.options[name][:, None] for name in names}
        kind = _chunk_kinds(self.options, vpp)
        if np.all(kind >= 0) and "plain_chunk_forward_s" in self.options:
            return {name: _of_kinds(self.options, name, kind) for name in MICRO_BATCH_OUTPUTS}
        repeated = {name: np.repeat(column, vpp) for name, column in self.options.items()}
        rows = chunk_rows(repeated, np.tile(np.arange(vpp), len(self.options["layers"])))
        seconds = self.model.stages(self.costs, rows, "chunk")
        return {name: column.reshape(-1, vpp) for name, column in seconds.items()}

    @cached_property
    def global_floor_s(self) -> float:
        """Lower bound of the global part: at every stage some option must be taken."""
        least = np.full(self.layout["pp"], np.inf)
        np.minimum.at(least, self.options["position"], self.options["global_s"])
        return float(least.max())

    @cached_property
    def row_bound_s(self) -> Array:
        """Lower bound of the step of every assignment that takes a row, float[options].

        Its rank does its first work, all its micro-batches and its last work; before and after, a micro-batch passes
        through the ranks in front of it, which have first and last work of their own.
        """
        least_pass, least_edge = (np.full(self.layout["pp"], np.inf) for _ in range(2))
        np.minimum.at(least_pass, self.chain.stage, self.chain.pass_through)
        np.minimum.at(least_edge, self.chain.stage, self.chain.edge)
        way = np.cumsum(least_pass) - least_pass
        # The longest way in: from any rank in front, whose own first and last work come before the passing.
        entry = np.maximum.accumulate(least_edge - way) + way
        in_front = np.concatenate([[0.0], (entry + least_pass)[:-1]])
        enter = np.maximum(in_front[self.chain.stage], self.chain.edge)
        others = np.maximum(self.options["global_s"], self.global_floor_s)
        return np.asarray(self.chain.work + enter + others)

    def restricted(self, rows: NDArray[Any]) -> "Pipeline":
        """The same layout with some of its options."""
        return replace(self, options=take(self.options, rows))

    def times(self, rows: Any = slice(None)) -> StageTimes:
        """The times of option rows; with a choice of one row a stage, those of its pipeline."""
        return StageTimes.of(**self._seconds(rows))

    def _seconds(self, rows: Any = slice(None)) -> dict[str, Array]:
        """The fields of `times`, each of the shape that it has there."""
        cells = {name: self.chunk_s[name][rows] for name in MICRO_BATCH_OUTPUTS}
        none = np.zeros_like(cells["forward_s"])
        cells |= {name: self.chunk_s[name][rows] if name in self.chunk_s else none for name in ATTENTION_OUTPUTS}
        ranks = {name: self.options[name][rows] for name in ("first_s", "last_s")}
        return {**cells, **ranks, "hop_s": self.hop_s[self.options["position"][rows]]}

    @cached_property
    def chain(self) -> ChainProblem:
        """The schedule's lower bound as a chain of stages: the layers of the options add up to the model's."""
        schedule = schedules.schedule(self.schedule, **self._cut)
        # Not checked here: a chain checks what it is made of.
        terms = schedule.bound_terms(self.layout["num_microbatches"], StageTimes(**self._seconds()))
        return ChainProblem(
            stage=self.options["position"],
            units=self.options["layers"],
            work=terms.work_s,
            pass_through=terms.pass_s,
            edge=terms.edge_s,
            num_stages=self.layout["pp"],
            total_units=units(self.model.request.model),
        )

    @cached_property
    def cycle_bound_s(self) -> float:
        """Lower bound of the span of 1F1B that pays every hop once a round of pp micro-batches; 0 for other schedules.

        Rank 0 keeps pp micro-batches in flight, so the next round starts when the first one is back: each round takes
        at least the way down and up, all stages and hops. The last rank works through what is left of the batch in
        one of them: it never has two micro-batches in flight.
        """
        if self.schedule != "1f1b":
            return 0.0
        pp, m = self.layout["pp"], self.layout["num_microbatches"]
        rounds, rest = (m - 1) // pp + 1, (m - 1) % pp
        per_round = self.chain.work / m
        on_last = np.where(self.chain.stage == pp - 1, rest, 0)
        least = minimum_sum(self.chain, per_round * (rounds + on_last)).bound
        return float(least + 2 * rounds * self.hop_s[:-1].sum())

    def step_s(self, choice: ArrayLike) -> float:
        """The step time of record of a choice: the action table replayed, plus the global part."""
        rows = np.asarray(choice)
        return float(simulate(self.table, self.times(rows)).span_s) + float(self.options["global_s"][rows].max())

    def within_hosts(self, choice: NDArray[np.int64]) -> NDArray[np.int64]:
        """The choice, or where a node cannot hold what it offloads, the best whose GPUs share their nodes evenly.

        Empty where there is none: what stages of one node share is the mixed-integer program's to find.
        """
        if "host_bytes" not in self.options:
            return choice
        request, host_bytes = self.model.request, self.options["host_bytes"]
        if hosts.fit(request, self.layout, host_bytes[choice]):
            return choice
        kept = np.flatnonzero(host_bytes <= hosts.even_share_bytes(request, self.layout))
        if len(np.unique(self.options["position"][kept])) < self.layout["pp"]:
            return choice[:0]
        return np.asarray(kept[minimum_cost(self.restricted(kept).chain).choice])

    def exceeds_hosts(self) -> bool:
        """Whether every choice, whatever its seconds, offloads more than some node can hold."""
        least = (minimum_sum(self.chain, limit.coefficients).bound for limit in self._host_limits)
        return any(taken > hosts.room_bytes(self.model.request) for taken in least)

    @cached_property
    def _host_limits(self) -> tuple[SideConstraint, ...]:
        """What the stages that share a node may offload together, for every mix of stages that could be too much."""
        host_bytes = self.options.get("host_bytes")
        if host_bytes is None:
            return ()
        request, position = self.model.request, self.options["position"]
        most = np.zeros(self.layout["pp"])
        np.maximum.at(most, position, host_bytes)
        room, mixes = hosts.room_bytes(request), hosts.gpus_by_node(request, self.layout)
        return tuple(SideConstraint(gpus[position] * host_bytes, "<=", room) for gpus in mixes if gpus @ most > room)

    def assignment(self, known: Iterable[PathCoefficients] = ()) -> AssignmentProblem:
        """The exact problem of this layout's options: the longest path through the action graph plus the global part.

        Each path is linear in the options' seconds. It opens with those of the schedule's bound that enter at the
        first stage, and `known` ones of the same action table; the rest are added as solutions ask for them. What nodes
        can hold is a side constraint.
        """
        return AssignmentProblem(
            stage=self.options["position"],
            units=self.options["layers"],
            features=self._features,
            num_stages=self.layout["pp"],
            total_units=units(self.model.request.model),
            paths=(*self._bound_paths(), *map(self._path, known)),
            global_value=self.options["global_s"],
            side_constraints=self._host_limits,
        )

    @cached_property
    def _features(self) -> Array:
        """Every option's seconds of each chunk, its first and last, and its terms in the chain; one row an option."""
        edges = np.column_stack([self.options["first_s"], self.options["last_s"]])
        terms = np.column_stack([self.chain.work, self.chain.pass_through, self.chain.edge])
        return np.concatenate([*self.chunk_s.values(), edges, terms], axis=1)

    def _bound_paths(self) -> list[Path]:
        """The paths of the schedule's bound that enter the pipeline at its first stage."""
        stages, features = self.layout["pp"], self._features.shape[1]
        paths = []
        for turn in range(stages):
            coefficients = np.zeros((stages, features))
            coefficients[turn, -3] = coefficients[0, -1] = 1.0
            coefficients[:turn, -2] = 1.0
            paths.append(Path(coefficients))
        return paths

    def step_and_paths(self, choice: ArrayLike) -> tuple[float, tuple[Path, ...]]:
        """`step_s` of a choice and paths that bound every choice: the longest of its replay, and others like it.

        Those are long as well, or would be if stages changed places: a program that knows one of them alone goes
        through all such changes. Of 1F1B they are known, of other schedules a replay with one stage slower has them.
        """
        rows = np.asarray(choice)
        key = rows.tobytes()
        if key not in self._replays:
            span_s, paths = self._replayed(self.times(rows))
            different = {(path.coefficients.tobytes(), path.constant): path for path in map(self._path, paths)}
            self.replayed_paths.extend(paths)
            self._replays[key] = span_s + float(self.options["global_s"][rows].max()), tuple(different.values())
        return self._replays[key]

    def _replayed(self, times: StageTimes) -> tuple[float, list[PathCoefficients]]:
        """The span of a choice's times and its paths, the longest first.

        Of other schedules than 1F1B the first choice has one alone: many programs end with it.
        """
        table = self.table
        if self.schedule == "1f1b" or not self._replays or table.actions * table.ranks > MOST_PROBED:
            span_s, path = span_and_path(table, times)
            known = window_paths(table.micro_batches, times).each() if self.schedule == "1f1b" else ()
            return float(span_s), [path, *known]
        spans_s, longest = span_and_path(table, times.with_slower_ranks(SLOWER))
        return float(spans_s[0]), list(longest.each())

    @cached_property
    def replayed_paths(self) -> list[PathCoefficients]:
        """The paths of all replays, in order: every layout of the same action table has them."""
        return []

    @cached_property
    def _replays(self) -> dict[bytes, tuple[float, tuple[Path, ...]]]:
        """What was replayed with its paths, by choice."""
        return {}

    def _path(self, path: PathCoefficients) -> Path:
        """A path of the action table, over the features of the options."""
        edges = np.column_stack([path.first, path.last])
        no_terms = np.zeros((len(edges), 3))
        chunks = [getattr(path, name.removesuffix("_s")) for name in self.chunk_s]
        coefficients = np.concatenate([*chunks, edges, no_terms], axis=1)
        return Path(coefficients.astype(np.float64), float(path.hop @ self.hop_s))

    def chosen(self, choice: ArrayLike) -> Rows:
        """The option rows of a choice, one a stage, with every output of the stage expressions."""
        rows = take(self.options, np.asarray(choice))
        everything: Mapping[str, Any] = self.model.stages(self.costs, rows, "all")
        return {**rows, **everything}


def _chunk_kinds(options: Rows, vpp: int) -> NDArray[np.int64]:
    """Which of CHUNK_KINDS costs what each chunk of each option does, int[options, vpp]; -1 where none does."""
    layers, ends_model = options["layers"][:, None], options["head_rank"][:, None] > 0
    widths = chunk_layers(layers, vpp, np.arange(vpp), ends_model)
    plain = np.where(ends_model, vpp - 2, 1)
    as_plain = widths == np.take_along_axis(widths, plain, axis=1)
    as_first = (widths == widths[:, :1]) & (options["has_embedding"][:, None] == 0)
    as_last = (widths == widths[:, -1:]) & (options["has_head"][:, None] == 0)
    kinds = np.where(as_plain, 1, np.where(as_first, 0, np.where(as_last, 2, -1)))
    kinds[:, 0], kinds[:, -1] = 0, 2
    return kinds


def _of_kinds(options: Rows, name: str, kind: NDArray[np.int64]) -> Array:
    """A cost of each chunk of each option, float[options, vpp], from those of the kinds of chunk that it has."""
    costs = np.column_stack([options[f"{each}_chunk_{name}"] for each in CHUNK_KINDS])
    return np.take_along_axis(costs, kind, axis=1)

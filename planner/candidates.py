"""From layouts to candidates: the options of their stages, the best assignment of them, its replay, its proof."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner import bounds, options, space, windows
from planner.alike import alike_options
from planner.capability import is_restricted
from planner.incumbent import Candidate, Part, Search
from planner.layout_costs import LayoutCosts
from planner.pipeline import Pipeline
from planner.predict import CostModel
from planner.space import take
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost

__all__ = ["assigned", "bounded", "costed", "evenly_split", "promising", "replayed", "tightened", "under_cutoff"]

# Parts of a batch that are costed beside each other, and layouts of the smallest: enough for columns to be worth while.
MOST_PARTS, LEAST_PART = 4, 128
# Layouts that are split evenly before what they take limits the next, twice as many.
FIRST_SPLIT = 16

Array = NDArray[np.float64]


def promising(search: Search, costs: LayoutCosts) -> Iterator[Candidate]:
    """The layouts of a batch, each with its best assignment, whose bound is under the cutoff; not yet replayed.

    Stages hold any number of layers that the cutoff allows. Parts of the batch know the cutoff that was when it began;
    what is no longer under a later one is left out.
    """
    size = max(LEAST_PART, -(-len(costs) // MOST_PARTS))
    tasks = [(part, search.cutoff_s) for part in costs.parts(size)]
    for tally, found in search.workers.map(assigned, tasks):
        search.count(tally)
        for candidate in found:
            if candidate.bound_s < search.cutoff_s:
                yield candidate.of(search.model)
            else:
                search.drop("bound", bound_s=search.cutoff_s)


def assigned(model: CostModel, costs: LayoutCosts, cutoff_s: float) -> tuple[Part, list[Candidate]]:
    """What part of a batch counts, and its layouts that have an assignment under the cutoff."""
    part = Part(model, cutoff_s)
    found = (bounded(part, pipeline) for pipeline in costed(part, costs))
    return part, [candidate for candidate in found if candidate is not None]


def costed(search: Search, costs: LayoutCosts) -> Iterator[Pipeline]:
    """The pipelines of a batch of layouts that fit: every stage has options, with their seconds and bytes.

    Stages hold any number of layers that the cutoff allows.
    """
    within_s = np.full(len(costs), search.cutoff_s)
    windows_s = within_s - costs.layouts["global_bound_s"]
    return (pipeline for _, pipeline in _in_order(search, costs, windows_s, within_s))


def _in_order(
    search: Search, costs: LayoutCosts, windows_s: Array, within_s: Array, *, limited: bool = True
) -> Iterator[tuple[float, Pipeline]]:
    """The pipelines of the layouts whose steps may stay under `within_s`, float[layouts], by their bounds.

    Stages hold as many layers as `windows_s` allows. Unless it is `limited`, options of any seconds count.
    """
    model = search.model
    if not len(costs):
        return
    budget = within_s - costs.layouts["global_bound_s"] if limited else np.full(len(costs), inf)
    lower, upper, possible = windows.window(model, costs, windows_s)
    search.drop("bound", int(np.sum(~possible)), search.cutoff_s)
    lower, upper, asked_rows = windows.narrowed(model, costs, lower, upper, budget)
    rows = options.positions(lower, upper)
    search.visited(len(costs), len(rows["layout"]) + asked_rows)
    if is_restricted(model.request):
        costs, fitting, layout_of = alike_options(model, costs, rows)
        search.drop("memory", int(possible.sum()) - len(np.unique(layout_of)), search.cutoff_s)
        possible, budget, within_s = possible[layout_of], budget[layout_of], within_s[layout_of]
        fitting = take(fitting, costs.own_s(fitting) < budget[fitting["layout"]])
    else:
        fitting = options.stage_options(model, costs, rows, budget if limited else None)
    some = np.bincount(fitting["layout"], minlength=len(costs)) > 0
    bound_s = bounds.option_bounds(model, costs, fitting)
    edges = np.searchsorted(fitting["layout"], np.arange(len(costs) + 1))
    for index in np.argsort(bound_s, kind="stable").tolist():
        if bound_s[index] < within_s[index]:
            of_layout = take(fitting, slice(edges[index], edges[index + 1]))
            yield float(bound_s[index]), Pipeline(model, costs, index, of_layout)
        elif possible[index]:
            # Windows leave out what is not under the cutoff: no bound of a layout's options says more than that.
            # Of a layout without options nothing fits, or under a cutoff nothing that would matter.
            search.drop("bound" if some[index] or search.cutoff_s < inf else "memory", bound_s=search.cutoff_s)


def bounded(search: Search, pipeline: Pipeline) -> Candidate | None:
    """The layout's best assignment under its schedule's bound; None when none can matter."""
    floor_s = pipeline.global_floor_s
    solution = minimum_cost(pipeline.chain, search.cutoff_s - floor_s)
    if not solution.feasible:
        search.drop("bound", bound_s=search.cutoff_s)
        return None
    choice = pipeline.within_hosts(solution.choice)
    if not len(choice) and pipeline.exceeds_hosts():
        search.drop("memory")
        return None
    bound_s = max(solution.bound, pipeline.cycle_bound_s) + floor_s
    return Candidate(pipeline, choice, min(bound_s, search.cutoff_s))


def replayed(candidate: Candidate) -> Candidate:
    """The candidate with the step time of record of its choice, infinite where it has none."""
    if not len(candidate.choice):
        return candidate
    return replace(candidate, objective_s=candidate.pipeline.step_s(candidate.choice))


def tightened(search: Search, candidate: Candidate) -> Candidate:
    """The candidate after its layout's mixed-integer program: its best choice by replay, its proven bound."""
    candidate = under_cutoff(search, candidate)
    pipeline = candidate.pipeline
    known = search.paths.setdefault(pipeline.table_fields, {})
    result = cutting_planes(
        pipeline.assignment(known.values()),
        pipeline.step_and_paths,
        gap=search.request.gap / 2,
        cutoff=search.cutoff_s,
        start=candidate.choice if len(candidate.choice) else None,
        seconds=search.seconds_left,
    )
    known.update({path.key: path for path in pipeline.replayed_paths})
    # Stages of more layers than the cutoff allows are not among the options: nothing is proven beyond it.
    bound_s = min(max(result.bound, candidate.bound_s), search.cutoff_s)
    return replace(candidate, choice=result.choice, objective_s=result.objective, bound_s=bound_s)


def under_cutoff(search: Search, candidate: Candidate) -> Candidate:
    """The candidate without the options of its layout that no plan under the cutoff takes; its choice stays."""
    pipeline = candidate.pipeline
    kept = pipeline.row_bound_s < search.cutoff_s
    kept[candidate.choice] = True
    choice = np.cumsum(kept)[candidate.choice] - 1
    return replace(candidate, pipeline=pipeline.restricted(np.flatnonzero(kept)), choice=choice)


def evenly_split(trial: Search, costs: LayoutCosts, most: int, limit_s: float = inf) -> list[Candidate]:
    """The best `most` of the layouts that fit with their layers split about evenly, one of each mesh, best first.

    The best are those whose schedule's bound is the least; all are under the limit. Layouts come most promising first:
    what the first of them take limits the others.
    """
    best = _BestOfMeshes(most, limit_s)
    start, size = 0, FIRST_SPLIT
    while start < len(costs):
        part = costs.take(slice(start, start + size))
        start, size = start + size, 2 * size
        within_s = np.array([best.limit_s(mesh) for mesh in _meshes(part)])
        # Offload is for what does not fit in any time.
        limited = bool(np.any(within_s < inf)) and not trial.model.offload
        splits = _in_order(trial, part, windows.even_budget_s(trial.model, part), within_s, limited=limited)
        for bound_s, pipeline in splits:
            best.look_at(bound_s, pipeline)
    return best.in_order()


def _meshes(costs: LayoutCosts) -> list[tuple[int, ...]]:
    return list(zip(*(costs.layouts[name].tolist() for name in space.MESH), strict=True))


class _BestOfMeshes:
    """The best `most` candidates of different meshes, all under a limit."""

    def __init__(self, most: int, limit_s: float) -> None:
        self._most = most
        self._found: dict[tuple[int, ...], Candidate] = {}
        self._last_s = limit_s

    def limit_s(self, mesh: tuple[int, ...]) -> float:
        """Seconds that a candidate of the mesh must stay under to be among them."""
        return min(self._last_s, self._found[mesh].bound_s if mesh in self._found else inf)

    def look_at(self, bound_s: float, pipeline: Pipeline) -> None:
        """None; the layout's best assignment is among them from now on if it is better; none takes under `bound_s`."""
        mesh = tuple(pipeline.layout[name] for name in space.MESH)
        limit_s = self.limit_s(mesh)
        solution = minimum_cost(pipeline.chain, limit_s - pipeline.global_floor_s) if bound_s < limit_s else None
        if solution is None or not solution.feasible:
            return
        choice = pipeline.within_hosts(solution.choice)
        if len(choice):
            self._found[mesh] = Candidate(pipeline, choice, solution.bound + pipeline.global_floor_s)
            ordered = self.in_order()
            if len(ordered) == self._most:
                self._last_s = ordered[-1].bound_s

    def in_order(self) -> list[Candidate]:
        """The best, best first."""
        return sorted(self._found.values(), key=lambda candidate: candidate.bound_s)[: self._most]

"""The search: from a request to a plan document, with a proof of how much better any other plan could be.

`plan` is the data path, in order. Layouts are visited best first by a lower bound; the options of their stages are
costed as columns; a dynamic program finds the best assignment under the schedule's bound; what survives goes to a
mixed-integer program whose cuts are critical paths of replayed pipelines; the replay is the step time of record.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner import bounds, compose, options, space
from planner.document import PlanDocument
from planner.errors import Interrupted, LimitReached
from planner.incumbent import Candidate, Search
from planner.infeasible import explain_infeasible
from planner.pipeline import Pipeline
from planner.predict import CostModel, LayoutCosts
from planner.request import PlanRequest, Progress
from planner.space import Columns, take
from solver.assignment import Path
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost

__all__ = ["plan"]

# Layouts costed together: enough to keep numpy busy, few enough that a better incumbent helps the next ones.
FIRST_BATCH, LARGEST_BATCH = 8, 64
MESHES_AT_ONCE = 64
# Meshes that are looked at, beyond those that the proof needed, for alternatives to tell.
NEIGHBOURS = 32


def plan(request: PlanRequest, progress: Callable[[Progress], None] | None = None) -> PlanDocument:
    """The fastest plan that fits, with its certificate.

    Raises InfeasibleError when nothing fits, LimitReached at `request.time_limit_s` and Interrupted on Ctrl-C, both
    with the best plan so far.
    """
    search = Search(CostModel(request), progress)
    try:
        seed(search)
        for layouts in best_first(search):
            for pipeline in costed(search, layouts):
                candidate = bounded(search, pipeline)
                if candidate is not None:
                    search.add(replayed(candidate))
        for candidate in search.open_candidates():
            search.close(tightened(search, candidate))
        neighbours(search)
    except KeyboardInterrupt:
        raise Interrupted(compose.document(search) if search.best else None) from None
    if search.best is None:
        raise explain_infeasible(search)
    if search.limit_reached:
        message = f"the time limit of {request.time_limit_s:g} s was reached"
        raise LimitReached(compose.document(search), message)
    return compose.document(search)


def seed(search: Search) -> None:
    """None; the first feasible layouts, split evenly, give an incumbent to prune with. They prove nothing."""
    for layouts in best_first(search):
        for pipeline in costed(search, layouts, evenly=True):
            solution = minimum_cost(pipeline.chain)
            if solution.feasible:
                search.add(replayed(Candidate(pipeline, solution.choice, -inf)), proven=False)
        if search.best is not None:
            break
    search.start_over()


def best_first(search: Search) -> Iterator[Columns]:
    """Batches of layouts in the order of their bounds, until no bound is left under the cutoff."""
    model = search.model
    meshes = space.meshes(model.request)
    floor = bounds.mesh_bounds(model, meshes)
    order = np.argsort(floor, kind="stable")
    for start in range(0, len(order), MESHES_AT_ONCE):
        some = order[start : start + MESHES_AT_ONCE]
        if search.limit_reached or search.pruned(float(floor[some[0]])):
            return
        yield from _batches(search, space.layouts(model.request, take(meshes, some)))


def _batches(search: Search, layouts: Columns) -> Iterator[Columns]:
    """Batches of the layouts that can fit, in the order of their bounds, growing in size."""
    search.seen(len(layouts["pp"]))
    span, everything = bounds.layout_bounds(search.model, layouts)
    layouts = take({**layouts, "bound_s": span, "global_bound_s": everything}, span < search.cutoff_s)
    search.drop("bound", len(span) - len(layouts["pp"]), search.cutoff_s)
    if not len(layouts["pp"]):
        return
    layouts = take(layouts, np.argsort(layouts["bound_s"], kind="stable"))
    start, size = 0, FIRST_BATCH
    while start < len(layouts["pp"]) and not search.limit_reached:
        if search.pruned(float(layouts["bound_s"][start]), len(layouts["pp"]) - start):
            return
        batch = take(layouts, slice(start, start + size))
        _, least = bounds.least_memory(search.model, batch)
        fits = least["device_bytes"] * (1.0 + options.MARGIN) <= search.request.capacity_bytes
        search.drop("memory", int(np.sum(~fits)))
        if fits.any():
            yield take(batch, fits)
        start, size = start + size, min(2 * size, LARGEST_BATCH)


def costed(search: Search, layouts: Columns, *, evenly: bool = False) -> Iterator[Pipeline]:
    """The pipelines of a batch of layouts that fit: every stage has options, with their seconds and bytes.

    Stages hold any number of layers that the cutoff allows, or with `evenly` about an even share.
    """
    model = search.model
    budget = bounds.even_budget_s(model, layouts) if evenly else search.cutoff_s - layouts["global_bound_s"]
    lower, upper, possible = bounds.window(model, layouts, budget)
    search.drop("bound", int(np.sum(~possible)), search.cutoff_s)
    costs = LayoutCosts(model, layouts)
    rows = options.positions(lower, upper)
    fitting = options.stage_options(model, costs, rows)
    search.visited(len(layouts["pp"]), len(rows["layout"]))
    edges = np.searchsorted(fitting["layout"], np.arange(len(layouts["pp"]) + 1))
    for index, (start, end) in enumerate(pairwise(edges.tolist())):
        part = take(fitting, slice(start, end))
        if len(np.unique(part["position"])) == layouts["pp"][index]:
            yield Pipeline(model, costs, index, part)
        elif possible[index]:
            search.drop("memory", bound_s=search.cutoff_s)


def bounded(search: Search, pipeline: Pipeline) -> Candidate | None:
    """The layout's best assignment under its schedule's bound; None when none can matter."""
    floor_s = pipeline.global_floor_s
    solution = minimum_cost(pipeline.chain, search.cutoff_s - floor_s)
    if not solution.feasible:
        search.drop("bound", bound_s=solution.bound + floor_s)
        return None
    bound_s = max(solution.bound, pipeline.cycle_bound_s) + floor_s
    return Candidate(pipeline, solution.choice, bound_s)


def replayed(candidate: Candidate) -> Candidate:
    """The candidate with the step time of record of its choice."""
    return replace(candidate, objective_s=candidate.pipeline.step_s(candidate.choice))


def tightened(search: Search, candidate: Candidate) -> Candidate:
    """The candidate after its layout's mixed-integer program: its best choice by replay, its proven bound."""
    pipeline = candidate.pipeline

    def replay(choice: NDArray[np.int64]) -> tuple[float, Path]:
        return pipeline.step_s(choice), pipeline.critical_path(choice)

    result = cutting_planes(
        pipeline.assignment(candidate.choice),
        replay,
        gap=search.request.gap / 2,
        cutoff=search.cutoff_s,
        start=candidate.choice,
        seconds=search.seconds_left,
    )
    if not len(result.choice):
        return replace(candidate, bound_s=result.bound)
    return replace(candidate, choice=result.choice, objective_s=result.objective, bound_s=result.bound)


def neighbours(search: Search) -> None:
    """None; evenly split plans of the meshes next in the order of bounds are replayed, to be told as alternatives."""
    layouts = _next_meshes(search)
    if not len(layouts["pp"]):
        return
    for pipeline in costed(search, layouts, evenly=True):
        solution = minimum_cost(pipeline.chain)
        if solution.feasible:
            search.add(replayed(Candidate(pipeline, solution.choice, -inf)), proven=False)


def _next_meshes(search: Search) -> Columns:
    """The layout of least bound that can fit on each of the first meshes that nothing was replayed on."""
    model = search.model
    meshes = space.meshes(model.request)
    tried = {candidate.mesh for candidate in search.tried}
    fresh = np.array([mesh not in tried for mesh in zip(*(meshes[name].tolist() for name in ("tp", "pp", "dp")))])
    meshes = take(meshes, fresh)
    nearest = np.argsort(bounds.mesh_bounds(model, meshes), kind="stable")[:NEIGHBOURS]
    layouts = space.layouts(model.request, take(meshes, nearest))
    span, everything = bounds.layout_bounds(model, layouts)
    layouts = take({**layouts, "bound_s": span, "global_bound_s": everything}, np.argsort(span, kind="stable"))
    _, least = bounds.least_memory(model, layouts)
    layouts = take(layouts, least["device_bytes"] * (1.0 + options.MARGIN) <= model.request.capacity_bytes)
    _, first = np.unique(np.column_stack([layouts[name] for name in ("tp", "pp", "dp")]), axis=0, return_index=True)
    return take(layouts, np.sort(first))

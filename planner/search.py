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
from planner.layout_costs import LayoutCosts
from planner.offload import host_share_bytes
from planner.pipeline import Pipeline
from planner.predict import CostModel
from planner.request import PlanRequest, Progress
from planner.space import take
from solver.assignment import Path
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost

__all__ = ["plan"]

# Layouts costed together: enough to keep numpy busy, few enough that a better incumbent helps the next ones.
FIRST_BATCH, LARGEST_BATCH = 8, 128
MESHES_AT_ONCE = 64
# Layouts costed for each micro-batch size on a neighbouring mesh, for an alternative to tell.
LAYOUTS_NEARBY = 2


def plan(request: PlanRequest, progress: Callable[[Progress], None] | None = None) -> PlanDocument:
    """The fastest plan that fits, with its certificate.

    Raises InfeasibleError when nothing fits, LimitReached at `request.time_limit_s` and Interrupted on Ctrl-C, both
    with the best plan so far.
    """
    search = searched(Search(CostModel(request), progress))
    if search.best is None:  # nothing fits in the GPUs' memory: with the host's, something may
        search = searched(Search(CostModel(request, offload=True), progress))
    if search.best is None:
        raise explain_infeasible(search)
    if search.limit_reached and not search.proven:
        message = f"the time limit of {request.time_limit_s:g} s was reached"
        raise LimitReached(compose.document(search), message)
    return compose.document(search)


def searched(search: Search) -> Search:
    """The search, after everything that could hold the fastest plan was looked at."""
    try:
        seed(search)
        for costs in best_first(search):
            for pipeline in costed(search, costs):
                candidate = bounded(search, pipeline)
                if candidate is not None:
                    search.add(replayed(candidate))
        for candidate in search.open_candidates():
            search.close(candidate, tightened(search, candidate))
        neighbours(search)
    except KeyboardInterrupt:
        raise Interrupted(compose.document(search) if search.best else None) from None
    return search


def seed(search: Search) -> None:
    """None; the first feasible layouts, split evenly, give an incumbent to prune with. They prove nothing."""
    trial = Search(search.model)
    for costs in best_first(trial):
        for pipeline in costed(trial, costs, evenly=True):
            solution = minimum_cost(pipeline.chain)
            if solution.feasible:
                search.add(replayed(Candidate(pipeline, solution.choice, -inf)), proven=False)
        if search.best is not None:
            return


def best_first(search: Search) -> Iterator[LayoutCosts]:
    """Batches of layouts in the order of their bounds, until no bound is left under the cutoff."""
    model = search.model
    meshes = space.meshes(model.request)
    floor = bounds.mesh_bounds(model, meshes)
    order = np.argsort(floor, kind="stable")
    ahead = np.append(floor[order], inf)
    for start in range(0, len(order), MESHES_AT_ONCE):
        if search.reached(float(ahead[start])):
            return
        listed = space.layouts(model.request, take(meshes, order[start : start + MESHES_AT_ONCE]))
        behind = float(ahead[min(start + MESHES_AT_ONCE, len(order))])
        yield from _batches(search, LayoutCosts.of(model, listed), behind)
        if search.limit_reached:
            return
    search.reached(inf)


def _batches(search: Search, costs: LayoutCosts, ahead_s: float) -> Iterator[LayoutCosts]:
    """Batches of the layouts that can fit, in the order of their bounds, growing in size.

    Layouts of meshes further behind take `ahead_s` at least.
    """
    search.seen(len(costs))
    promising = _in_order(search, costs)
    search.drop("bound", len(costs) - len(promising), search.cutoff_s)
    start, size = 0, FIRST_BATCH
    while start < len(promising):
        bound_s = float(promising.layouts["bound_s"][start])
        if bound_s >= search.cutoff_s:
            search.drop("bound", len(promising) - start, bound_s)
            return
        if search.reached(min(bound_s, ahead_s)):
            return
        batch = promising.take(slice(start, start + size))
        fitting = can_fit(search, batch)
        search.drop("memory", len(batch) - len(fitting))
        if len(fitting):
            yield fitting
        start, size = start + size, min(2 * size, LARGEST_BATCH)


def _in_order(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts whose bound is under the cutoff, in the order of their bounds, which become columns of them."""
    step, everything = bounds.layout_bounds(search.model, costs)
    order = np.argsort(step, kind="stable")
    return costs.with_columns(bound_s=step, global_bound_s=everything).take(order[step[order] < search.cutoff_s])


def can_fit(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts whose least memory fits: on the device, or with what the host can take of it."""
    model, request = search.model, search.request
    capacity = request.capacity_bytes / (1.0 + options.MARGIN)
    fits = bounds.least_memory(model, costs, offload=model.offload)["device_bytes"] <= capacity
    if model.offload:
        relieved = host_share_bytes(request) * (1.0 + request.recipe.fragmentation_fraction)
        fits &= bounds.least_memory(model, costs)["device_bytes"] <= capacity + relieved
    return costs.take(fits)


def costed(search: Search, costs: LayoutCosts, *, evenly: bool = False) -> Iterator[Pipeline]:
    """The pipelines of a batch of layouts that fit: every stage has options, with their seconds and bytes.

    Stages hold any number of layers that the cutoff allows, or with `evenly` about an even share.
    """
    model = search.model
    budget = bounds.even_budget_s(model, costs) if evenly else search.cutoff_s - costs.layouts["global_bound_s"]
    lower, upper, possible = bounds.window(model, costs, budget)
    search.drop("bound", int(np.sum(~possible)), search.cutoff_s)
    rows = options.positions(lower, upper)
    fitting = options.stage_options(model, costs, rows)
    search.visited(len(costs), len(rows["layout"]))
    bound_s = bounds.option_bounds(model, costs, fitting)
    edges = np.searchsorted(fitting["layout"], np.arange(len(costs) + 1))
    for index, (start, end) in enumerate(pairwise(edges.tolist())):
        if bound_s[index] < search.cutoff_s:
            yield Pipeline(model, costs, index, take(fitting, slice(start, end)))
        elif possible[index]:
            # Windows leave out what is not under the cutoff: no bound of a layout's options says more than that.
            search.drop("bound" if bound_s[index] < inf else "memory", bound_s=search.cutoff_s)


def bounded(search: Search, pipeline: Pipeline) -> Candidate | None:
    """The layout's best assignment under its schedule's bound; None when none can matter."""
    floor_s = pipeline.global_floor_s
    solution = minimum_cost(pipeline.chain, search.cutoff_s - floor_s)
    if not solution.feasible:
        search.drop("bound", bound_s=search.cutoff_s)
        return None
    bound_s = max(solution.bound, pipeline.cycle_bound_s) + floor_s
    return Candidate(pipeline, solution.choice, min(bound_s, search.cutoff_s))


def replayed(candidate: Candidate) -> Candidate:
    """The candidate with the step time of record of its choice."""
    return replace(candidate, objective_s=candidate.pipeline.step_s(candidate.choice))


def tightened(search: Search, candidate: Candidate) -> Candidate:
    """The candidate after its layout's mixed-integer program: its best choice by replay, its proven bound."""
    candidate = under_cutoff(search, candidate)
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


def neighbours(search: Search) -> None:
    """None; on the meshes one step from the best one, the evenly split plan of least bound is replayed, to be told."""
    if search.best is None or search.limit_reached:
        return
    nearby = _nearby(search, search.best)
    if not len(nearby):
        return
    best: dict[tuple[int, ...], Candidate] = {}
    for pipeline in costed(Search(search.model), nearby, evenly=True):
        solution = minimum_cost(pipeline.chain)
        if solution.feasible:
            candidate = Candidate(pipeline, solution.choice, solution.bound + pipeline.global_floor_s)
            if candidate.mesh not in best or candidate.bound_s < best[candidate.mesh].bound_s:
                best[candidate.mesh] = candidate
    for candidate in best.values():
        search.add(replayed(candidate), proven=False)


def _nearby(search: Search, best: Candidate) -> LayoutCosts:
    """Layouts that can fit on the meshes one prime factor from the best one: the first of each micro-batch size."""
    model = search.model
    meshes = space.meshes(model.request)
    near = space.one_factor_away(dict(zip(space.MESH, best.mesh, strict=True)), meshes)
    costs = LayoutCosts.of(model, space.layouts(model.request, take(meshes, near)))
    step, _ = bounds.layout_bounds(model, costs)
    costs = can_fit(search, costs.take(np.argsort(step, kind="stable")))
    groups = np.column_stack([costs.layouts[name] for name in (*space.MESH, "micro_batch_size")])
    _, which = np.unique(groups, axis=0, return_inverse=True)
    kept = [
        np.flatnonzero(which.reshape(-1) == index)[:LAYOUTS_NEARBY] for index in range(int(which.max(initial=-1)) + 1)
    ]
    return costs.take(np.concatenate(kept) if kept else np.empty(0, dtype=np.int64))

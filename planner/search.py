"""The search: from a request to a plan document, with a proof of how much better any other plan could be.

`plan` is the data path, in order. Layouts are visited best first by a lower bound; the options of their stages are
costed as columns; a dynamic program finds the best assignment under the schedule's bound; what survives goes to a
mixed-integer program whose cuts are critical paths of replayed pipelines; the replay is the step time of record.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from math import inf
from typing import Any

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
FIRST_BATCH, LARGEST_BATCH = 64, 512
REFINED_AT_ONCE = 2048
SEEDS_A_MESH, SEEDS_REPLAYED = 2, 8
MESHES_AT_ONCE = 64
# Layouts costed for each micro-batch size on a neighbouring mesh, for an alternative to tell.
LAYOUTS_NEARBY = 4


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
        for candidate in seeds(Search(search.model)):
            search.add(replace(candidate, bound_s=-inf), proven=False)
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


def seeds(trial: Search) -> list[Candidate]:
    """Plans to prune with, split evenly: a few layouts of every mesh by an estimate, then more of the best meshes.

    Layouts that differ in the order of ranks or in replicas only are left out. The plans prove nothing about others.
    """
    for costs, _ in mesh_groups(trial):
        costs = _in_order(trial, costs)
        plain = (costs.layouts["rank_order"] == 0) & (costs.layouts["dp_replicate"] == 1)
        costs = _refined(trial, costs.take(plain))
        costs = costs.take(np.argsort(estimated_s(costs, space.units(trial.request.model)), kind="stable"))
        first = costs.take(first_of_each(costs.layouts, space.MESH, SEEDS_A_MESH))
        found = _best_of_each_mesh(_evenly(trial, first))
        if found:
            return list(map(replayed, found[:SEEDS_REPLAYED]))
    return []


def estimated_s(costs: LayoutCosts, layers: int) -> NDArray[np.float64]:
    """Seconds to rank layouts by: the work of their fullest stage, were all its chunks the widest, and its bubble."""
    pp, vpp, m = (costs.layouts[name] for name in ("pp", "vpp", "num_microbatches"))
    share = -(-layers // pp)
    widest = -(-share // vpp) * vpp / share
    return np.asarray(costs.layouts["bound_s"] * (widest + (pp - 1) / (m * vpp)))


def _evenly(trial: Search, costs: LayoutCosts) -> list[Candidate]:
    """The layouts that fit with their layers split about evenly, those of least bound first."""
    solved = [(pipeline, minimum_cost(pipeline.chain)) for pipeline in costed(trial, costs, evenly=True)]
    found = [Candidate(p, s.choice, s.bound + p.global_floor_s) for p, s in solved if s.feasible]
    return sorted(found, key=lambda candidate: candidate.bound_s)


def _best_of_each_mesh(candidates: list[Candidate]) -> list[Candidate]:
    """The first candidate of every mesh, in the order given."""
    first: dict[tuple[int, ...], Candidate] = {}
    for candidate in candidates:
        first.setdefault(candidate.mesh, candidate)
    return list(first.values())


def mesh_groups(search: Search) -> Iterator[tuple[LayoutCosts, float]]:
    """The layouts of so many meshes at once, those of least bound first, and the bound of the meshes behind them."""
    model = search.model
    meshes = space.meshes(model.request)
    floor = bounds.mesh_bounds(model, meshes)
    order = np.argsort(floor, kind="stable")
    ahead = np.append(floor[order], inf)
    for start in range(0, len(order), MESHES_AT_ONCE):
        if search.reached(float(ahead[start])):
            return
        listed = space.layouts(model.request, take(meshes, order[start : start + MESHES_AT_ONCE]))
        yield LayoutCosts.of(model, listed).best_context_forms(), float(ahead[min(start + MESHES_AT_ONCE, len(order))])


def first_of_each(layouts: Mapping[str, NDArray[Any]], names: tuple[str, ...], count: int) -> NDArray[np.int64]:
    """Indices, ascending, of the first `count` layouts of every combination of the named columns."""
    _, which = np.unique(np.column_stack([layouts[name] for name in names]), axis=0, return_inverse=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    place = np.arange(len(order)) - np.searchsorted(which[order], which[order])
    return np.sort(order[place < count])


def mesh_groups(search: Search) -> Iterator[tuple[LayoutCosts, float]]:
    """The layouts of so many meshes at once, those of least bound first, and the bound of the meshes behind them."""
    model = search.model
    meshes = space.meshes(model.request)
    floor = bounds.mesh_bounds(model, meshes)
    order = np.argsort(floor, kind="stable")
    ahead = np.append(floor[order], inf)
    for start in range(0, len(order), MESHES_AT_ONCE):
        if search.reached(float(ahead[start])):
            return
        listed = space.layouts(model.request, take(meshes, order[start : start + MESHES_AT_ONCE]))
        yield LayoutCosts.of(model, listed).best_context_forms(), float(ahead[min(start + MESHES_AT_ONCE, len(order))])


def best_first(search: Search) -> Iterator[LayoutCosts]:
    """Batches of layouts in the order of their bounds, until no bound is left under the cutoff."""
    for costs, behind_s in mesh_groups(search):
        yield from _batches(search, costs, behind_s)
        if search.limit_reached:
            return
    search.reached(inf)


def _batches(search: Search, costs: LayoutCosts, ahead_s: float) -> Iterator[LayoutCosts]:
    """Batches of the layouts that can fit, in the order of their bounds as far as these are known.

    Layouts of meshes further behind take `ahead_s` at least.
    """
    search.seen(len(costs))
    promising = _in_order(search, costs)
    search.drop("bound", len(costs) - len(promising), search.cutoff_s)
    ahead = np.append(promising.layouts["bound_s"], inf)
    for start in range(0, len(promising), REFINED_AT_ONCE):
        behind = min(ahead_s, float(ahead[min(start + REFINED_AT_ONCE, len(promising))]))
        if search.reached(min(float(ahead[start]), behind)):
            search.drop("bound", len(promising) - start, float(ahead[start]))
            return
        refined = _refined(search, promising.take(slice(start, start + REFINED_AT_ONCE)))
        yield from _sized(search, refined, behind)


def _sized(search: Search, costs: LayoutCosts, behind_s: float) -> Iterator[LayoutCosts]:
    """The layouts, which are in the order of their bounds, in batches that grow; none that is left is under `behind_s`."""
    start, size = 0, FIRST_BATCH
    while start < len(costs):
        bound_s = float(costs.layouts["bound_s"][start])
        if bound_s >= search.cutoff_s or search.reached(min(bound_s, behind_s)):
            search.drop("bound", len(costs) - start, bound_s)
            return
        yield costs.take(slice(start, start + size))
        start, size = start + size, min(2 * size, LARGEST_BATCH)


def _in_order(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts whose bound is under the cutoff, in the order of their bounds, which become columns of them."""
    step, everything = bounds.layout_bounds(search.model, costs)
    order = np.argsort(step, kind="stable")
    return costs.with_columns(bound_s=step, global_bound_s=everything).take(order[step[order] < search.cutoff_s])


def _refined(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts that can fit, with the bound of what they need to fit, in its order."""
    if search.model.offload:
        fits = can_fit(search, costs)
        search.drop("memory", len(costs) - len(fits))
        return fits
    step = np.maximum(costs.layouts["bound_s"], bounds.fullest_stage_bounds(search.model, costs))
    order = np.argsort(step, kind="stable")
    possible = order[step[order] < inf]
    search.drop("memory", len(costs) - len(possible))
    return costs.with_columns(bound_s=step).take(possible)


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
    if not len(costs):
        return
    budget = bounds.even_budget_s(model, costs) if evenly else search.cutoff_s - costs.layouts["global_bound_s"]
    lower, upper, possible = bounds.window(model, costs, budget)
    search.drop("bound", int(np.sum(~possible)), search.cutoff_s)
    rows = options.positions(lower, upper)
    fitting = options.stage_options(model, costs, rows)
    search.visited(len(costs), len(rows["layout"]))
    bound_s = bounds.option_bounds(model, costs, fitting)
    edges = np.searchsorted(fitting["layout"], np.arange(len(costs) + 1))
    for index in np.argsort(bound_s, kind="stable").tolist():
        if bound_s[index] < search.cutoff_s:
            yield Pipeline(model, costs, index, take(fitting, slice(edges[index], edges[index + 1])))
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
    for candidate in _best_of_each_mesh(_evenly(Search(search.model), nearby)):
        search.add(replayed(candidate), proven=False)


def _nearby(search: Search, best: Candidate) -> LayoutCosts:
    """Layouts that can fit on the meshes one prime factor from the best one: the first of each micro-batch size."""
    model = search.model
    meshes = space.meshes(model.request)
    near = space.one_factor_away(dict(zip(space.MESH, best.mesh, strict=True)), meshes)
    costs = LayoutCosts.of(model, space.layouts(model.request, take(meshes, near))).best_context_forms()
    costs = can_fit(search, costs)
    step, _ = bounds.layout_bounds(model, costs)
    costs = costs.with_columns(bound_s=step)
    costs = costs.take(np.argsort(estimated_s(costs, space.units(model.request.model)), kind="stable"))
    return costs.take(first_of_each(costs.layouts, space.MESH, LAYOUTS_NEARBY))

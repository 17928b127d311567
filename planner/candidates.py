"""From layouts to candidates: the options of their stages, the best assignment of them, its replay, its proof."""

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from planner import bounds, options
from planner.alike import alike_options
from planner.capability import is_restricted
from planner.incumbent import Candidate, Search
from planner.layout_costs import LayoutCosts
from planner.pipeline import Pipeline
from planner.space import take
from solver.assignment import Path
from solver.cutting_planes import cutting_planes
from solver.dynamic_program import minimum_cost

__all__ = ["bounded", "costed", "evenly_split", "replayed", "tightened", "under_cutoff"]


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
    search.visited(len(costs), len(rows["layout"]))
    if is_restricted(model.request):
        costs, fitting, layout_of = alike_options(model, costs, rows)
        search.drop("memory", int(possible.sum()) - len(np.unique(layout_of)), search.cutoff_s)
        possible = possible[layout_of]
    else:
        fitting = options.stage_options(model, costs, rows, None if evenly else budget)
    some = np.bincount(fitting["layout"], minlength=len(costs)) > 0
    if not evenly:
        fitting = take(fitting, bounds.own_bounds(costs, fitting) < search.cutoff_s)
    bound_s = bounds.option_bounds(model, costs, fitting)
    edges = np.searchsorted(fitting["layout"], np.arange(len(costs) + 1))
    for index in np.argsort(bound_s, kind="stable").tolist():
        if bound_s[index] < search.cutoff_s:
            yield Pipeline(model, costs, index, take(fitting, slice(edges[index], edges[index + 1])))
        elif possible[index]:
            # Windows leave out what is not under the cutoff: no bound of a layout's options says more than that.
            search.drop("bound" if some[index] else "memory", bound_s=search.cutoff_s)


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

    def replay(choice: NDArray[np.int64]) -> tuple[float, Path]:
        return pipeline.step_s(choice), pipeline.critical_path(choice)

    result = cutting_planes(
        pipeline.assignment(candidate.choice),
        replay,
        gap=search.request.gap / 2,
        cutoff=search.cutoff_s,
        start=candidate.choice if len(candidate.choice) else None,
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


def evenly_split(trial: Search, costs: LayoutCosts) -> list[Candidate]:
    """The layouts that fit with their layers split about evenly, those of least bound first.

    Where stages must choose alike, the choice of least bound of each layout that has a plan.
    """
    found: dict[tuple[int, ...], Candidate] = {}
    for pipeline in costed(trial, costs, evenly=True):
        layout = tuple(pipeline.layout.values())
        solution = minimum_cost(pipeline.chain) if layout not in found else None
        if solution is not None and solution.feasible:
            choice = pipeline.within_hosts(solution.choice)
            if len(choice):
                found[layout] = Candidate(pipeline, choice, solution.bound + pipeline.global_floor_s)
    return sorted(found.values(), key=lambda candidate: candidate.bound_s)

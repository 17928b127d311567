"""From layouts to candidates: the options of their stages, the best assignment of them, its replay, its proof."""

from collections.abc import Iterator
from dataclasses import replace
from math import inf

import numpy as np

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
    return (pipeline for _, pipeline in _in_order(search, costs, evenly=False))


def _in_order(search: Search, costs: LayoutCosts, *, evenly: bool) -> Iterator[tuple[float, Pipeline]]:
    """The pipelines of `costed`, or with `evenly` those whose stages hold about an even share; by their bounds."""
    model = search.model
    if not len(costs):
        return
    budget = windows.even_budget_s(model, costs) if evenly else search.cutoff_s - costs.layouts["global_bound_s"]
    lower, upper, possible = windows.window(model, costs, budget)
    search.drop("bound", int(np.sum(~possible)), search.cutoff_s)
    asked_rows = 0
    if not evenly:
        lower, upper, asked_rows = windows.narrowed(model, costs, lower, upper, budget)
    rows = options.positions(lower, upper)
    search.visited(len(costs), len(rows["layout"]) + asked_rows)
    if is_restricted(model.request):
        costs, fitting, layout_of = alike_options(model, costs, rows)
        search.drop("memory", int(possible.sum()) - len(np.unique(layout_of)), search.cutoff_s)
        possible, budget = possible[layout_of], budget[layout_of]
        fitting = fitting if evenly else take(fitting, costs.own_s(fitting) < budget[fitting["layout"]])
    else:
        fitting = options.stage_options(model, costs, rows, None if evenly else budget)
    some = np.bincount(fitting["layout"], minlength=len(costs)) > 0
    bound_s = bounds.option_bounds(model, costs, fitting)
    edges = np.searchsorted(fitting["layout"], np.arange(len(costs) + 1))
    for index in np.argsort(bound_s, kind="stable").tolist():
        if bound_s[index] < search.cutoff_s:
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

    result = cutting_planes(
        pipeline.assignment(),
        pipeline.step_and_paths,
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


def evenly_split(trial: Search, costs: LayoutCosts, most: int) -> list[Candidate]:
    """The best `most` of the layouts that fit with their layers split about evenly, one of each mesh, best first.

    The best are those whose schedule's bound is the least.
    """
    found: dict[tuple[int, ...], Candidate] = {}
    limit_s = inf
    for bound_s, pipeline in _in_order(trial, costs, evenly=True):
        mesh = tuple(pipeline.layout[name] for name in space.MESH)
        below_s = min(limit_s, found[mesh].bound_s if mesh in found else inf)
        solution = minimum_cost(pipeline.chain, below_s - pipeline.global_floor_s) if bound_s < below_s else None
        if solution is not None and solution.feasible:
            choice = pipeline.within_hosts(solution.choice)
            if not len(choice):
                continue
            found[mesh] = Candidate(pipeline, choice, solution.bound + pipeline.global_floor_s)
            ordered = sorted(each.bound_s for each in found.values())
            limit_s = ordered[most - 1] if len(ordered) >= most else inf
    return sorted(found.values(), key=lambda candidate: candidate.bound_s)[:most]

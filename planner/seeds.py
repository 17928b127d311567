"""Plans without a proof: the first incumbents, to prune with, and the alternatives next to the best plan, to tell."""

from dataclasses import replace
from math import inf

import numpy as np
from numpy.typing import NDArray

from planner import bounds, space
from planner.candidates import evenly_split, replayed
from planner.incumbent import Candidate, Search
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.pruning import can_fit, in_order, refined
from planner.space import take

__all__ = ["neighbours", "seeds"]

# Layouts of every mesh of which it is looked at what they need to fit, and of these that are costed, for a first
# incumbent; and how many are replayed.
REFINED_A_MESH, SEEDS_A_MESH, SEEDS_REPLAYED = 128, 2, 8
# Layouts costed on a neighbouring mesh, for an alternative to tell.
LAYOUTS_NEARBY = 4


def seeds(model: CostModel, costs: LayoutCosts) -> list[Candidate]:
    """Plans to prune with: a few layouts of every mesh, those of least estimate, split evenly.

    Layouts that differ in the order of ranks or in replicas only are left out. The plans prove nothing about others.
    """
    trial, layers = Search(model), space.units(model.request.model)
    costs = in_order(trial, costs)
    plain = (costs.layouts["rank_order"] == 0) & (costs.layouts["dp_replicate"] == 1)
    costs = refined(trial, _most_promising(costs.take(plain), layers, REFINED_A_MESH))
    costs = _most_promising(costs, layers, SEEDS_A_MESH)
    found = evenly_split(trial, costs, SEEDS_REPLAYED)
    return [replace(replayed(candidate), bound_s=-inf) for candidate in found]


def _most_promising(costs: LayoutCosts, layers: int, count: int) -> LayoutCosts:
    """Of every mesh the `count` layouts of least estimate, by it."""
    costs = costs.take(np.argsort(estimated_s(costs, layers), kind="stable"))
    return costs.take(space.first_of_each(costs.layouts, space.MESH, count))


def estimated_s(costs: LayoutCosts, layers: int) -> NDArray[np.float64]:
    """Seconds to rank layouts by: the work of their fullest stage, were all its chunks the widest, and its bubble."""
    pp, vpp, m, slices = (costs.layouts[name] for name in ("pp", "vpp", "num_microbatches", "slices"))
    share = -(-layers // pp)
    widest = -(-share // vpp) * vpp / share
    return np.asarray(costs.layouts["bound_s"] * (widest + (pp - 1) / (m * vpp * slices)))


def neighbours(search: Search) -> None:
    """None; on the meshes one step from the best one, the evenly split plan of least bound is replayed, to be told.

    Where enough others are known to be told, those alone that can be faster.
    """
    if search.best is None or search.limit_reached:
        return
    nearby = _nearby(search, search.best)
    if not len(nearby):
        return
    found = evenly_split(Search(search.model), nearby, len(nearby), search.last_told_s)
    for candidate in found:
        if candidate.bound_s < search.last_told_s:
            search.add(replayed(candidate), proven=False)


def _nearby(search: Search, best: Candidate) -> LayoutCosts:
    """Layouts that can fit on the meshes one prime factor from the best one: the first of each micro-batch size."""
    model = search.model
    meshes = space.meshes(model.request)
    near = space.one_factor_away(dict(zip(space.MESH, best.mesh, strict=True)), meshes)
    costs = LayoutCosts.of(model, space.layouts(model.request, take(meshes, near))).best_context_forms()
    costs = can_fit(search, costs)
    step, everything = bounds.layout_bounds(model, costs)
    costs = costs.with_columns(bound_s=step, global_bound_s=everything)
    return _most_promising(costs, space.units(model.request.model), LAYOUTS_NEARBY)

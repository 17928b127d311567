"""Layouts in the order in which they are looked at: those that could be fastest first, until none can matter."""

from collections.abc import Iterator
from math import inf

import numpy as np

from planner import bounds, space
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts
from planner.predict import unit_seconds
from planner.pruning import in_order, refined
from planner.seeds import seeds
from planner.space import take

__all__ = ["best_first"]

# Layouts costed together: enough to keep numpy busy, few enough that a better incumbent helps the next ones.
FIRST_BATCH, LARGEST_BATCH = 64, 512
REFINED_AT_ONCE = 2048
MESHES_AT_ONCE = 64
# With fewer meshes the search is over before another process has loaded what it needs.
MANY_MESHES = 512


def best_first(search: Search) -> Iterator[LayoutCosts]:
    """Batches of layouts in the order of their bounds, until no bound is left under the cutoff."""
    model = search.model
    meshes, inexpressible = space.counted_meshes(model.request)
    if inexpressible:
        search.drop("target meshes", inexpressible)
    if not len(meshes["pp"]):
        search.reached(inf)
        return
    if len(meshes["pp"]) >= MANY_MESHES:
        search.workers.start()
    floor = bounds.mesh_bounds(model, meshes)
    order = np.argsort(floor, kind="stable")
    ahead = np.append(floor[order], inf)
    for start in range(0, len(order), MESHES_AT_ONCE):
        if search.reached(float(ahead[start])):
            return
        costs = listed(search, take(meshes, order[start : start + MESHES_AT_ONCE]))
        if search.best is None:
            for candidate in seeds(model, costs):
                search.add(candidate, proven=False)
        yield from _batches(search, costs, float(ahead[min(start + MESHES_AT_ONCE, len(order))]))
        if search.limit_reached:
            return
    search.reached(inf)


def listed(search: Search, meshes: space.Columns) -> LayoutCosts:
    """The layouts on some meshes whose work alone leaves them under the cutoff, with their costs and their bounds."""
    model = search.model
    layouts, inexpressible = space.counted_layouts(model.request, meshes)
    search.seen(len(layouts["pp"]))
    if inexpressible:
        search.drop("target", inexpressible)
    least_s = bounds.span_bounds(model, layouts, unit_seconds(model.micro_batch(layouts)))
    least_s = least_s * model.relief(layouts["world"])
    costs = LayoutCosts.of(model, take(layouts, least_s < search.cutoff_s)).best_context_forms()
    search.drop("bound", len(least_s) - len(costs), search.cutoff_s)
    step, everything = bounds.layout_bounds(model, costs)
    return costs.with_columns(bound_s=step, global_bound_s=everything)


def _batches(search: Search, costs: LayoutCosts, ahead_s: float) -> Iterator[LayoutCosts]:
    """Batches of the layouts that can fit, in the order of their bounds as far as these are known.

    Layouts of meshes further behind take `ahead_s` at least.
    """
    promising = in_order(search, costs)
    search.drop("bound", len(costs) - len(promising), search.cutoff_s)
    ahead = np.append(promising.layouts["bound_s"], inf)
    for start in range(0, len(promising), REFINED_AT_ONCE):
        behind = min(ahead_s, float(ahead[min(start + REFINED_AT_ONCE, len(promising))]))
        if search.reached(min(float(ahead[start]), behind)):
            search.drop("bound", len(promising) - start, float(ahead[start]))
            return
        batch = refined(search, promising.take(slice(start, start + REFINED_AT_ONCE)))
        yield from _sized(search, batch, behind)


def _sized(search: Search, costs: LayoutCosts, behind_s: float) -> Iterator[LayoutCosts]:
    """The layouts, ordered by their bounds, in batches that grow; none of another batch is under `behind_s`."""
    start, size = 0, FIRST_BATCH
    while start < len(costs):
        bound_s = float(costs.layouts["bound_s"][start])
        if bound_s >= search.cutoff_s or search.reached(min(bound_s, behind_s)):
            search.drop("bound", len(costs) - start, bound_s)
            return
        yield costs.take(slice(start, start + size))
        start, size = start + size, min(2 * size, LARGEST_BATCH)

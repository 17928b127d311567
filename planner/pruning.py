"""Layouts under the cutoff: what their work, their memory and their fullest stage say before any option is costed."""

from math import inf

import numpy as np

from planner import bounds, fitting, hosts
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts

__all__ = ["can_fit", "in_order", "refined"]

# Layouts whose fullest stage is costed together, beside others.
PART_LAYOUTS = 1024


def in_order(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts whose bound, a column of them, is under the cutoff, in the order of their bounds."""
    step = costs.layouts["bound_s"]
    order = np.argsort(step, kind="stable")
    return costs.take(order[step[order] < search.cutoff_s])


def refined(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts that can fit, with the bound of what they need to fit, in its order."""
    if search.model.offload:
        fits = can_fit(search, costs)
        search.drop("memory", len(costs) - len(fits))
        return fits
    tasks = [(part, search.cutoff_s) for part in costs.parts(PART_LAYOUTS)]
    parts = search.workers.map(bounds.fullest_stage_bounds, tasks)
    step = np.maximum(costs.layouts["bound_s"], np.concatenate([*parts, np.empty(0)]))
    order = np.argsort(step, kind="stable")
    possible = order[step[order] < inf]
    search.drop("memory", len(costs) - len(possible))
    return costs.with_columns(bound_s=step).take(possible)


def can_fit(search: Search, costs: LayoutCosts) -> LayoutCosts:
    """The layouts whose least memory fits: on the device, or with what the host can take of it."""
    model, request = search.model, search.request
    capacity = fitting.device_capacity(model)
    fits = bounds.least_memory(model, costs, offload=model.offload)["device_bytes"] <= capacity
    if model.offload:
        relieved = hosts.limit_bytes(request, costs.layouts) * (1.0 + request.recipe.fragmentation_fraction)
        fits &= bounds.least_memory(model, costs)["device_bytes"] <= capacity + relieved
    return costs.take(fits)

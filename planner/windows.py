"""How many layers each position of a layout can hold: by its time alone, and by what its options take to fit."""

from math import inf

import numpy as np
from numpy.typing import NDArray

from planner.bounds import total_s
from planner.capability import is_restricted
from planner.layout_costs import LayoutCosts
from planner.options import affordable
from planner.predict import CostModel
from planner.space import head_position, units

__all__ = ["even_budget_s", "narrowed", "window"]

Array = NDArray[np.float64]
Counts = NDArray[np.int64]


def even_budget_s(model: CostModel, costs: LayoutCosts) -> Array:
    """A budget, seconds, under which `window` opens around the even split: two layers more than each stage's share."""
    unit_s = costs.unit_s
    share = total_s(model, unit_s) / costs.layouts["pp"] + 2.0 * unit_s["layer"]
    apart, together = np.maximum(unit_s["embedding"], unit_s["head"]), unit_s["embedding"] + unit_s["head"]
    at_least = np.where(head_position(costs.layouts) > 0, apart, together) + 2.0 * unit_s["layer"]
    return np.asarray(costs.layouts["num_microbatches"] * np.maximum(share, at_least))


def window(
    model: CostModel, costs: LayoutCosts, budget_s: Array
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Layers that each position of each layout can hold in a step within `budget_s` (its global part left out).

    int[layouts, positions] lower and upper ends, and whether a layout has any assignment within its windows; positions
    beyond pp, and every position of a layout that has none, get an empty window.
    """
    layers, unit_s, layouts = units(model.request.model), costs.unit_s, costs.layouts
    p = layouts["pp"][:, None]
    position = np.arange(int(p.max()))[None, :]
    exists = position < p
    head = head_position(layouts)[:, None]
    extra = np.where(position == 0, unit_s["embedding"][:, None], 0.0)
    extra = extra + np.where(position == head, unit_s["head"][:, None], 0.0)
    spread = layouts["spread"][:, None] > 0
    extra = np.where(spread, (unit_s["embedding"] + unit_s["head"])[:, None] / p, extra)
    allowed = (budget_s / layouts["num_microbatches"])[:, None]
    room = np.floor((allowed - extra) / unit_s["layer"][:, None] * (1.0 + 1e-12))
    least = _fewest_layers(layouts["vpp"][:, None], position, head)
    least = np.where(spread, layouts["vpp"][:, None], least)
    # With a layer at least in every other place, no stage can hold more than the rest.
    spare = layers - np.where(exists, least, 0).sum(axis=1, keepdims=True) + least
    return _settled(exists, least, np.where(exists, np.minimum(room, spare), 0).astype(np.int64), layers)


def _fewest_layers(vpp: NDArray[np.int64], position: NDArray[np.int64], head: NDArray[np.int64]) -> NDArray[np.int64]:
    """Fewest layers of a stage: one a chunk, but a chunk that holds the embedding or the head may hold no other."""
    ends = 1 * (position == 0) + (position == head)
    return np.asarray(np.where(vpp == 1, 1, vpp - ends), dtype=np.int64)


def narrowed(
    model: CostModel, costs: LayoutCosts, lower: Counts, upper: Counts, budget_s: Array
) -> tuple[Counts, Counts, int]:
    """The windows without layers that no option of a position holds within `budget_s`; and how many rows were asked.

    Memory and seconds grow with layers: a position that cannot hold so many holds fewer. Each is asked about an even
    share, then about the most that is left to it; what one cannot hold the others must. A layout whose positions
    cannot hold all layers has empty windows. Nothing is narrowed where options may differ from number to number, as
    those of a target's rules do, and those on the host, which are tried where nothing fits without.
    """
    asked_rows = 0
    if is_restricted(model.request) or model.offload or np.all(budget_s == inf):
        return lower, upper, asked_rows
    layers, p = units(model.request.model), costs.layouts["pp"][:, None]
    exists, share = np.arange(upper.shape[1]) < p, -(-layers // p)
    for evenly in (True, False):
        wanted = np.clip(share, lower, upper) if evenly else upper
        layout, position = np.nonzero(lower <= upper)
        rows = {"layout": layout, "position": position, "layers": wanted[layout, position]}
        too_many = np.zeros(upper.shape, dtype=bool)
        too_many[layout, position] = ~affordable(model, costs, rows, budget_s)
        lower, upper, _ = _settled(exists, lower, np.where(too_many, wanted - 1, upper), layers)
        asked_rows += len(layout)
    return lower, upper, asked_rows


def _settled(
    exists: NDArray[np.bool_], least: Counts, most: Counts, layers: int
) -> tuple[Counts, Counts, NDArray[np.bool_]]:
    """The windows of positions that exist, which hold what the others cannot; as `window` returns them."""
    upper = np.where(exists, most, 0)
    reachable = upper.sum(axis=1, keepdims=True) - upper
    lower = np.where(exists, np.maximum(least, layers - reachable), 0)
    possible = ~((upper < lower) & exists).any(axis=1) & (upper.sum(axis=1) >= layers)
    lower[~possible] = 0
    upper[~possible] = -1
    upper[~exists] = -1
    return lower.astype(np.int64), upper, possible

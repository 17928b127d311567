"""Host offload where it is searched for: every choice of fractions on the grid that no smaller one replaces.

Of a recompute set and its number of layers, more of any fraction is slower and takes more of the host: a choice is
needless where another, none of whose fractions is larger, fits. Of weights, gradients and activations every choice is
looked at, of optimizer states the least share that fits. The number of recomputed layers is no fraction among these:
layers that are recomputed have less to offload, so that more of them can be faster.
"""

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import hosts
from planner.layout_costs import LayoutCosts
from planner.offload import GRID, least_bytes
from planner.predict import CostModel
from planner.space import OFFLOADS, take

__all__ = ["every_offload"]

Rows = dict[str, NDArray[Any]]
Array = NDArray[np.float64]

ROWS_AT_ONCE = 20_000
STEPS = len(GRID)
# Which share of optimizer states fits: an index of GRID, or this where none does.
NONE_FITS = STEPS


def every_offload(model: CostModel, costs: LayoutCosts, rows: Rows, budget_s: Array, capacity: float) -> Rows:
    """The rows (with a ZeRO mode and a recompute set) under every choice of fractions worth having, with seconds.

    Only choices that fit in `capacity` bytes of a device and the memory of its node, and whose stage by itself can be
    done within the budget of its layout, float[layouts].
    """
    rows = _promising(model, costs, rows, budget_s, capacity)
    blocks = range(0, max(len(rows["layout"]), 1), ROWS_AT_ONCE)
    found = [
        part
        for start in blocks
        for part in _choices(model, costs, take(rows, slice(start, start + ROWS_AT_ONCE)), capacity)
    ]
    options = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    options |= model.stages(costs, options, "times")
    return take(options, costs.own_s(options) < budget_s[options["layout"]])


def _promising(model: CostModel, costs: LayoutCosts, rows: Rows, budget_s: Array, capacity: float) -> Rows:
    """The rows that can be done within the budget with nothing offloaded, and fit with everything offloaded."""
    kept = {**rows, **{name: np.zeros(len(rows["layout"])) for name in OFFLOADS}}
    in_time = costs.own_s(kept | model.stages(costs, kept, "times")) < budget_s[rows["layout"]]
    rows = take(rows, in_time)
    return take(rows, least_bytes(model, costs, rows)["device_bytes"] <= capacity)


def _choices(model: CostModel, costs: LayoutCosts, rows: Rows, capacity: float) -> list[Rows]:
    """For each choice of weights, gradients and activations, the rows with the least optimizer share that fits.

    Left out are those where a choice that was looked at before, none of whose shares is larger, fits as well.
    """
    count = len(rows["layout"])
    limit = hosts.stage_limits_bytes(model.request, costs.layouts, rows)
    least = np.full((STEPS, STEPS, STEPS, count), NONE_FITS)
    found = [_with_shares(take(rows, []), (0, 0, 0), np.empty(0, dtype=np.int64)) | _bytes_of_none()]
    for choice in itertools.product(range(STEPS), repeat=3):
        least[choice] = _least_before(least, choice)
        trying = np.flatnonzero(least[choice] > 0)
        for step in reversed(range(STEPS)):  # each share that fits makes the next smaller one worth a look
            trial = trying[least[choice][trying] > step]
            part = _with_shares(take(rows, trial), choice, np.full(len(trial), step))
            needed = model.stages(costs, part, "device")
            fits = needed["device_bytes"] <= capacity
            least[choice][trial[fits]] = step
            trying = np.setdiff1d(trying, trial[~fits], assume_unique=True)
        new = np.flatnonzero(least[choice] < _least_before(least, choice))
        part = _with_shares(take(rows, new), choice, least[choice][new])
        part |= model.stages(costs, part, "device")
        away = sum(part[name] for name in OFFLOADS) > 0  # without, it is an option that knows no offload
        found.append(take(part, away & (part["host_bytes"] <= limit[new])))
    return found


def _least_before(least: NDArray[np.int64], choice: tuple[int, ...]) -> NDArray[np.int64]:
    """The least optimizer share that fits under any smaller choice: it has one step less in one of its shares."""
    smaller = [
        least[tuple(step - (at == axis) for at, step in enumerate(choice))] for axis in range(3) if choice[axis] > 0
    ]
    return np.minimum.reduce(smaller) if smaller else np.full(least.shape[-1], NONE_FITS)


def _with_shares(rows: Rows, choice: tuple[int, ...], optimizer: NDArray[np.int64]) -> Rows:
    """The rows with shares of weights, gradients and activations, one for all, and each its own of optimizer states."""
    grid, count = np.array(GRID), len(rows["layout"])
    weights, gradients, activations = (np.full(count, grid[step]) for step in choice)
    return {**rows, **dict(zip(OFFLOADS, (weights, gradients, grid[optimizer], activations), strict=True))}


def _bytes_of_none() -> Rows:
    return {"device_bytes": np.empty(0), "host_bytes": np.empty(0)}

"""Whether rows of stages fit: as they are, or with the recompute that just makes them fit."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.capability import can_express
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.space import RECOMPUTE_SETS, joined, take

__all__ = [
    "FULL",
    "MARGIN",
    "Rows",
    "device_capacity",
    "fewest_layers_in_full",
    "fitting",
    "plainly_fitting",
    "recomputed_to_fit",
    "searched_sets",
    "with_recompute",
]

# Until predictions carry bands of their own, what is predicted must fit with this much to spare (design, section 3).
MARGIN = 0.06
FULL = RECOMPUTE_SETS.index(("full",))

Rows = dict[str, NDArray[Any]]


def fitting(model: CostModel, costs: LayoutCosts, rows: Rows) -> Rows:
    """The rows (each with a ZeRO mode) under every recompute set that fits, with `device_bytes` and their `origin`.

    Of the full set the fewest layers that fit; where nothing needs to be recomputed, no other set is looked at.
    """
    plain = plainly_fitting(model, costs, rows)
    pending = np.setdiff1d(np.arange(len(rows["layout"])), plain["origin"], assume_unique=True)
    return joined([plain, recomputed_to_fit(model, costs, rows, pending)])


def plainly_fitting(model: CostModel, costs: LayoutCosts, rows: Rows) -> Rows:
    """Those of `fitting` without recompute, where the request asks for such."""
    origin = np.arange(len(rows["layout"]) if 0 in searched_sets(model) else 0)
    return _fitting(model, costs, origin, with_recompute(take(rows, origin), 0, np.zeros_like(origin)))


def recomputed_to_fit(model: CostModel, costs: LayoutCosts, rows: Rows, pending: NDArray[np.int64]) -> Rows:
    """Those of `fitting` that recompute something, of the pending rows: those that do not fit without, if any may."""
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    wanted = searched_sets(model)
    in_full: list[Rows] = []
    if FULL in wanted:
        trial, which = fewest_layers_in_full(model, costs, take(rows, pending), whole[pending])
        allowed = can_express(model, costs.layouts, trial, "stage")
        in_full = [{**take(trial, allowed), "origin": pending[which[allowed]]}]
        # What a set keeps and restores lies between nothing and everything: what fits under neither fits under none.
        pending = pending[which] if 0 in wanted else pending
    selective = [index for index in wanted if index not in (0, FULL)]
    # Together: what is costed once for many rows takes little longer.
    origin, sets = np.tile(pending, len(selective)), np.repeat(np.array(selective, dtype=np.int64), len(pending))
    return joined([_fitting(model, costs, origin, with_recompute(take(rows, origin), sets, whole[origin])), *in_full])


def _fitting(model: CostModel, costs: LayoutCosts, origin: NDArray[np.int64], trial: Rows) -> Rows:
    """Those of the rows that fit, with `device_bytes` and their `origin`."""
    trial["device_bytes"] = model.stages(costs, trial, "device")["device_bytes"]
    fits = trial["device_bytes"] <= device_capacity(model)
    fits &= can_express(model, costs.layouts, trial, "stage")
    return {**take(trial, fits), "origin": origin[fits]}


def fewest_layers_in_full(
    model: CostModel, costs: LayoutCosts, rows: Rows, whole: NDArray[np.int64]
) -> tuple[Rows, NDArray[np.int64]]:
    """The rows that fit fully recomputed, with the fewest such layers per chunk, by bisection; and which these are.

    Memory falls with every layer more: a recomputed layer keeps its input, a part of what it kept before.
    """
    capacity = device_capacity(model)
    trial = with_recompute(rows, FULL, np.maximum(whole, 1))
    trial["device_bytes"] = model.stages(costs, trial, "device")["device_bytes"]
    which = np.flatnonzero((trial["device_bytes"] <= capacity) & (whole > 0))
    rows, trial, one, high = take(rows, which), take(trial, which), np.ones_like(which), whole[which]
    if model.request.recompute == "full":  # of every layer, whether or not fewer would fit
        return trial, which
    # Where the target knows no part of the layers.
    low = np.where(can_express(model, costs.layouts, with_recompute(rows, FULL, one), "stage"), one, high)
    needed = model.prepared(costs, trial, "device")
    while np.any(low < high):
        middle = (low + high) // 2
        enough = needed(with_recompute(rows, FULL, middle))["device_bytes"] <= capacity
        high = np.where(enough, middle, high)
        low = np.where(enough, low, np.minimum(middle + 1, high))
    fewest = with_recompute(rows, FULL, high)
    return {**fewest, "device_bytes": needed(fewest)["device_bytes"]}, which


def with_recompute(rows: Rows, recompute: int | NDArray[np.int64], per_chunk: NDArray[np.int64]) -> Rows:
    """The rows under a recompute set (each its own, or one for all) that covers up to `per_chunk` layers of a chunk."""
    narrow = np.minimum(per_chunk, rows["chunk_layers"])
    wide = np.minimum(per_chunk, rows["chunk_layers"] + 1)
    count, again, again_in_wide = len(rows["layout"]), rows["live_total"], rows["live_wide"]
    if "waiting_total" in rows:
        # What was recomputed for the input gradient stays for the weight gradient. At the most, both ways.
        again, again_in_wide = again - rows["waiting_total"], again_in_wide - rows["waiting_wide"]
    return {
        **rows,
        "recompute": np.full(count, recompute),
        "recompute_per_chunk": per_chunk,
        "recompute_ends": (per_chunk > 0).astype(np.int64),
        "recompute_layers": narrow * (rows["vpp"] - rows["wide_chunks"]) + wide * rows["wide_chunks"],
        "live_recompute_layers": narrow * again + (wide - narrow) * again_in_wide,
    }


def searched_sets(model: CostModel) -> tuple[int, ...]:
    """Indices of the recompute sets of the kind that the request asks for."""
    kinds = {0: "none", FULL: "full"}
    wanted = model.request.recompute
    return tuple(index for index in model.recompute_sets if wanted in (None, kinds.get(index, "selective")))


def device_capacity(model: CostModel) -> float:
    """Bytes that a stage may need on the device by prediction, for it to fit with the margin."""
    return model.request.capacity_bytes / (1.0 + MARGIN)

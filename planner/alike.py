"""Stage options for targets that want the same choices on all stages: what is then a part of the layout.

Each way to shard, to recompute and to offload that a layout's stages can share is a layout of its own here, with one
option for every position and number of layers. Of full recompute the counts worth trying are those that are the fewest
that fit for some stage, and every layer: with any other, all stages would still fit with the next smaller of these.
"""

import itertools

import numpy as np
from numpy.typing import NDArray

from planner import hosts
from planner.capability import offload_shares, without_the_inexpressible
from planner.fitting import FULL, Rows, device_capacity, fewest_layers_in_full, searched_sets, with_recompute
from planner.layout_costs import LayoutCosts
from planner.offload import GRID, STATES
from planner.options import chunk_seconds, stage_rows, with_zero_modes
from planner.predict import CostModel
from planner.space import OFFLOADS, take

__all__ = ["alike_options"]

# The usual ways to offload something, and all: weights, gradients, optimizer states and activations.
USUAL_SHARES = np.array([(*states, *rest) for states in STATES for rest in itertools.product(GRID, GRID)])[1:]
EVERY_SHARE = np.array(list(itertools.product(GRID, repeat=len(OFFLOADS))))[1:]
CHOICES = ("layout", "zero", "recompute", "shared_per_chunk", *OFFLOADS)


def alike_options(model: CostModel, costs: LayoutCosts, rows: Rows) -> tuple[LayoutCosts, Rows, NDArray[np.int64]]:
    """The layouts, once for each choice that all their stages share; the options of these; which layout each was.

    `rows` are those of `positions`. Only options that fit and that the target can express are left; they have the
    seconds of `stage_options`, and name the layout by its place among those returned.
    """
    rows = without_the_inexpressible(
        model, costs.layouts, stage_rows(costs.layouts, rows, model.request.recipe), "split"
    )
    rows = with_zero_modes(model, costs.layouts, rows)
    found = _on_device(model, costs, rows)
    if model.offload:
        found += _on_host(model, costs, rows)
    options = {name: np.concatenate([part[name] for part in found]) for name in found[0]}
    options |= model.stages(costs, options, "times")
    options |= chunk_seconds(model, costs, options)
    choices = np.column_stack([options[name] for name in CHOICES])
    distinct, variant = np.unique(choices, axis=0, return_inverse=True)
    layout = distinct[:, 0].astype(np.int64)
    options["layout"] = variant.reshape(-1)
    order = np.lexsort((options["layers"], options["position"], options["layout"]))
    return costs.take(layout), take(options, order), layout


def _on_device(model: CostModel, costs: LayoutCosts, rows: Rows) -> list[Rows]:
    """The rows that fit, under every recompute set; where all stages fit as they are, no set is looked at."""
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    plain = _fitting(model, costs, with_recompute(rows, 0, 0 * whole), 0 * whole)
    group = _group(rows)
    found = [plain] if 0 in searched_sets(model) else [take(plain, [])]
    most = int(group.max(initial=0)) + 1
    unfit = np.bincount(group, minlength=most) > np.bincount(_group(plain, rows), minlength=most)
    pressed = np.flatnonzero(unfit[group]) if 0 in searched_sets(model) else np.arange(len(group))
    rows, whole, group = take(rows, pressed), whole[pressed], group[pressed]
    for recompute in searched_sets(model):
        if recompute == FULL:
            found.append(_in_full(model, costs, rows, whole, group))
        elif recompute:
            found.append(_fitting(model, costs, with_recompute(rows, recompute, whole), 0 * whole))
    return found


def _group(rows: Rows, like: Rows | None = None) -> NDArray[np.int64]:
    """One number for each layout and ZeRO mode, the same as among the rows `like`."""
    most = int((like or rows)["zero"].max(initial=0)) + 1
    return np.asarray(rows["layout"] * most + rows["zero"])


def _in_full(
    model: CostModel, costs: LayoutCosts, rows: Rows, whole: NDArray[np.int64], group: NDArray[np.int64]
) -> Rows:
    """The rows with layers recomputed in full: as many of each chunk as some stage of the layout needs, or all."""
    trial, which = fewest_layers_in_full(model, costs, rows, whole)
    fits, fewest = np.zeros(len(whole), dtype=bool), whole + 1
    fits[which], fewest[which] = True, trial["recompute_per_chunk"]
    most = int(whole.max(initial=0)) + 2
    every = np.zeros(int(group.max(initial=0)) + 1, dtype=np.int64)
    np.maximum.at(every, group, whole)
    keys = np.unique(np.concatenate([(group * most + fewest)[fits], (group * most + every[group])[fits]]))
    pattern = model.request.model.layer_pattern
    if pattern.leading or pattern.trailing:  # the ends of the model add layers of their own to a count
        keys = keys[keys % most == every[keys // most]]
    start, end = np.searchsorted(keys, group * most + fewest), np.searchsorted(keys, (group + 1) * most)
    repeats = np.where(fits, end - start, 0)
    row = np.repeat(np.arange(len(group)), repeats)
    offset = np.arange(len(row)) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    shared = keys[np.repeat(start, repeats) + offset] % most
    per_chunk = np.minimum(shared, whole[row])
    return _fitting(model, costs, with_recompute(take(rows, row), FULL, per_chunk), shared)


def _fitting(model: CostModel, costs: LayoutCosts, rows: Rows, shared: NDArray[np.int64]) -> Rows:
    """The rows that fit and that the target can express, with what their stages share of recompute in full."""
    rows = {**rows, "shared_per_chunk": shared}
    if "offload_weights" not in rows:
        rows |= {name: np.zeros(len(shared)) for name in OFFLOADS}
    rows = without_the_inexpressible(model, costs.layouts, rows, "stage")
    needed = model.stages(costs, rows, "device")
    rows = {**rows, **needed}
    fits = rows["device_bytes"] <= device_capacity(model)
    if model.offload:
        fits &= needed["host_bytes"] <= hosts.stage_limits_bytes(model.request, costs.layouts, rows)
    return take(rows, fits)


def _on_host(model: CostModel, costs: LayoutCosts, rows: Rows) -> list[Rows]:
    """The rows that fit with something offloaded, for every share on the grid that the target has.

    They recompute nothing or every layer; where offload is searched for, under every recompute set and number of
    layers, and shares are all there are.
    """
    every = "offload" in model.request.search
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    most, pattern = int(whole.max(initial=0)), model.request.model.layer_pattern
    parts = every and model.request.recompute != "full" and not (pattern.leading or pattern.trailing)
    found = []
    for recompute in searched_sets(model):
        if recompute not in (0, FULL) and not every:
            continue
        fewest = 1 if recompute == FULL and parts else most
        for count in range(fewest, most + 1):
            trial = with_recompute(rows, recompute, np.minimum(whole, count) if recompute else 0 * whole)
            found += _with_shares(model, costs, trial, recompute, count if recompute == FULL else 0)
    return found


def _with_shares(model: CostModel, costs: LayoutCosts, rows: Rows, recompute: int, shared: int) -> list[Rows]:
    """The rows, under one recompute set, that fit with each of the shares; `shared` of a full chunk are recomputed."""
    usual = EVERY_SHARE if "offload" in model.request.search else USUAL_SHARES
    found = []
    for shares in offload_shares(model, usual, int(recompute == FULL)).tolist():
        columns = {name: np.full(len(rows["layout"]), share) for name, share in zip(OFFLOADS, shares, strict=True)}
        part = without_the_inexpressible(model, costs.layouts, {**rows, **columns}, "stage")
        found.append(_fitting(model, costs, part, np.full(len(part["layout"]), shared)))
    return found

"""Lower bounds of whole layouts: no memory, no recompute, no state exchange. They order the search and prune it.

Every stage i does `m * t_i`, after and before the way to it through earlier stages; the layers are shared out. With
`q = 1 - 1/(m v)` the best that any (even fractional) sharing of the total time T can do is `T / (v (1 - q^p))`: all
paths through the pipeline are then equally long. docs/cost_model.md derives it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.options import FULL, stage_rows, with_recompute
from planner.predict import CostModel, LayoutCosts
from planner.space import ZERO_MODES, Columns

__all__ = ["even_budget_s", "layout_bounds", "least_memory", "mesh_bounds", "unit_times", "window"]

Array = NDArray[np.float64]


@dataclass(frozen=True)
class UnitTimes:
    """Least seconds of one micro-batch in a layer, the embedding and the head, forward and backward; one row a layout."""

    layer_s: Array
    embedding_s: Array
    head_s: Array

    def total_s(self, layers: int) -> Array:
        """Seconds of one micro-batch in the whole model."""
        return layers * self.layer_s + self.embedding_s + self.head_s


def unit_times(micro_batch: Mapping[str, Array]) -> UnitTimes:
    """The least seconds, from the costs of `CostModel.micro_batch` without recompute."""
    parts = ("forward_s", "input_grad_s", "weight_grad_s")
    units = (sum(micro_batch[f"{unit}_{part}"] for part in parts) for unit in ("layer", "embedding", "head"))
    return UnitTimes(*(np.asarray(unit) for unit in units))


def mesh_bounds(model: CostModel, mesh: Columns) -> Array:
    """Lower bound of the step of every layout on each mesh, seconds: its work at the best micro-batch size, shared."""
    request = model.request
    sizes = np.flatnonzero(request.workload.global_batch % np.arange(1, request.workload.global_batch + 1) == 0) + 1
    degrees = np.unique(mesh["tp"])
    grid = np.meshgrid(degrees, sizes, indexing="ij")
    tp, size = (axis.reshape(-1) for axis in grid)
    parallel = (tp > 1) & request.recipe.sequence_parallel
    micro_batch = model.micro_batch(
        {"tp": tp, "micro_batch_size": size, "cp": np.ones_like(tp), "sequence_parallel": parallel}
    )
    per_sequence = unit_times(micro_batch).total_s(request.model.layers) / size
    best = per_sequence.reshape(grid[0].shape).min(axis=1)
    work = request.workload.global_batch * best[np.searchsorted(degrees, mesh["tp"])]
    return np.asarray(work / (mesh["dp"] * mesh["pp"]))


def layout_bounds(model: CostModel, layouts: Columns) -> tuple[Array, Array]:
    """Lower bounds of each layout, seconds: of the step, and of its global part (contained in the first)."""
    layers = model.request.model.layers
    times = unit_times(model.micro_batch(layouts))
    total = times.total_s(layers)
    m, p, v = (layouts[name].astype(np.float64) for name in ("num_microbatches", "pp", "vpp"))
    shared = 1.0 - (1.0 - 1.0 / (m * v)) ** p
    # A rank's first chunk can be a layer short of its even share of the rank's layers.
    short = (p - 1.0) * (v - 1.0) / v * times.layer_s
    span = np.maximum(total / (v * shared) - short, m * total / p)
    everything = global_bounds(model, layouts)
    return span + everything, everything


def global_bounds(model: CostModel, layouts: Columns) -> Array:
    """Lower bound of the global part of a step, seconds: that of a stage of average size, at its best ZeRO level."""
    costs = LayoutCosts(model, layouts, sets=(0,))
    rows = len(layouts["pp"])
    share = 1.0 / layouts["pp"]
    average = {
        "layout": np.arange(rows),
        "recompute": np.zeros(rows, dtype=np.int64),
        "layers": model.request.model.layers * share,
        "has_embedding": share,
        "has_head": share,
    }
    by_mode = [
        model.stages(costs, {**average, "zero": np.full(rows, mode)}, "global")["global_s"] for mode in (0, 1, 4)
    ]
    return np.asarray(np.min(by_mode, axis=0))


def even_budget_s(model: CostModel, layouts: Columns) -> Array:
    """A budget, seconds, under which `window` opens around the even split: two layers more than each stage's share."""
    times = unit_times(model.micro_batch(layouts))
    share = times.total_s(model.request.model.layers) / layouts["pp"] + 2.0 * times.layer_s
    at_least = np.maximum(times.embedding_s, times.head_s) + 2.0 * times.layer_s
    return np.asarray(layouts["num_microbatches"] * np.maximum(share, at_least))


def window(
    model: CostModel, layouts: Columns, budget_s: Array
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.bool_]]:
    """Layers that each position of each layout can hold in a step within `budget_s` (its global part left out).

    int[layouts, positions] lower and upper ends, and whether a layout has any assignment within its windows; positions
    beyond pp, and every position of a layout that has none, get an empty window.
    """
    layers = model.request.model.layers
    times = unit_times(model.micro_batch(layouts))
    p = layouts["pp"][:, None]
    position = np.arange(int(p.max()))[None, :]
    exists = position < p
    extra = np.where(position == 0, times.embedding_s[:, None], 0.0)
    extra = extra + np.where(position == p - 1, times.head_s[:, None], 0.0)
    allowed = (budget_s / layouts["num_microbatches"])[:, None]
    room = np.floor((allowed - extra) / times.layer_s[:, None] * (1.0 + 1e-12))
    least = _fewest_layers(layouts["vpp"][:, None], position, p)
    # With a layer at least in every other place, no stage can hold more than the rest.
    spare = layers - np.where(exists, least, 0).sum(axis=1, keepdims=True) + least
    upper = np.where(exists, np.minimum(room, spare), 0).astype(np.int64)
    reachable = upper.sum(axis=1, keepdims=True) - upper
    lower = np.where(exists, np.maximum(least, layers - reachable), 0)
    possible = ~((upper < lower) & exists).any(axis=1) & (upper.sum(axis=1) >= layers)
    upper[~possible] = -1
    lower[~possible] = 0
    upper[~exists] = -1
    return lower.astype(np.int64), upper, possible


def _fewest_layers(
    vpp: NDArray[np.int64], position: NDArray[np.int64], pp: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Fewest layers of a stage: one a chunk, but a chunk that holds the embedding or the head may hold no other."""
    ends = (position == 0).astype(np.int64) + (position == pp - 1)
    return np.where(vpp == 1, 1, vpp - np.minimum(ends, 1))


def least_memory(model: CostModel, layouts: Columns) -> tuple[dict[str, NDArray[Any]], dict[str, Array]]:
    """Rows (one a layout) and bytes by cause: what some stage of each layout needs at the very least.

    Some stage holds an even share of the layers or more; it is costed at the position that keeps least alive, without
    the ends of the model unless there is one stage only, with every sharding of states, all or nothing recomputed.
    What a selective set keeps and restores lies between those two.
    """
    costs = LayoutCosts(model, layouts)
    rows = _even_stage(model, layouts)
    trials = []
    for zero in range(len(ZERO_MODES["zero_stage"])):
        for recompute, share in ((0, 0), (FULL, 1)):
            count = np.full(len(rows["layout"]), share)
            trial = with_recompute({**rows, "zero": np.full_like(count, zero)}, recompute, count * rows["layers"])
            trials.append((trial, model.stages(costs, trial, "all")))
    best = np.argmin([values["device_bytes"] for _, values in trials], axis=0)
    index = np.arange(len(best))
    bytes_by_cause = {name: np.stack([v[name] for _, v in trials])[best, index] for name in trials[0][1]}
    return rows, bytes_by_cause


def _even_stage(model: CostModel, layouts: Columns) -> dict[str, NDArray[Any]]:
    p, count = layouts["pp"], len(layouts["pp"])
    layers = -(-model.request.model.layers // p)
    # The last rank keeps least alive; chunks are taken as even, rounded down, so that no split can keep less.
    rows = stage_rows(layouts, {"layout": np.arange(count), "position": p - 1, "layers": layers})
    alone = (p == 1).astype(np.int64)
    ends = {name: rows[name] * alone for name in ("has_embedding", "has_head", "live_embedding", "live_head")}
    return {**rows, **ends, "live_wide": 0 * layers, "live_layers": rows["live_total"] * rows["chunk_layers"]}

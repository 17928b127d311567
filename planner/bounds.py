"""Lower bounds of whole layouts, in seconds and in bytes. They order the search and prune it.

Seconds: no memory, no recompute, no state exchange. Every stage i does `m * t_i`, after and before the way to it
through earlier stages; the layers are shared out. With `q = 1 - 1/(m v)` the best that any (even fractional) sharing
of the total time T can do is `T / (v (1 - q^p))`: all paths through the pipeline are then equally long. Where the
backward is split, weight gradients may come last and only the way in, forwards, is certain. docs/cost_model.md derives
both.
"""

import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.fitting import FULL, Rows, plainly_fitting, recomputed_to_fit, with_recompute
from planner.layout_costs import LayoutCosts
from planner.offload import least_bytes
from planner.options import COLUMNS, by_schedule, counted, kv_gradient_layers, stage_rows, with_zero_modes
from planner.predict import ATTENTION_OUTPUTS, MICRO_BATCH_OUTPUTS, CostModel, unit_seconds
from planner.request import PlanRequest
from planner.slices import every_slice_count
from planner.space import (
    SPLIT,
    ZERO_MODES,
    Columns,
    context_forms,
    divisors,
    expert_forms,
    head_position,
    is_sliced,
    sequence_parallel,
    take,
    units,
)

__all__ = [
    "fullest_stage_bounds",
    "layout_bounds",
    "least_memory",
    "mesh_bounds",
    "option_bounds",
    "span_bounds",
]

Array = NDArray[np.float64]
UNSHARDED, SHARDED = 0, 1  # indices of ZERO_MODES that a global part can be least under
# Prices of a layer, over its seconds without recompute, for `option_bounds`.
PRICES = np.linspace(0.96, 1.5, 28)


def mesh_bounds(model: CostModel, mesh: Columns) -> Array:
    """Lower bound of the step of every layout on each mesh, seconds: its work at the best micro-batch size, shared.

    The best, too, of every way to split context and experts that some mesh of these degrees allows.
    """
    pairs, which = np.unique(np.column_stack([mesh["tp"], mesh["cp"]]), axis=0, return_inverse=True)
    work = model.request.workload.global_batch * _least_per_sequence_s(model, pairs)[which.reshape(-1)]
    ranks = mesh["dp"] * mesh["pp"]
    return np.asarray(work / ranks * model.relief(ranks * mesh["tp"] * mesh["cp"]))


def _least_per_sequence_s(model: CostModel, pairs: NDArray[np.int64]) -> Array:
    """Least seconds of one sequence in the whole model on tp*cp ranks, over micro-batch sizes and ways to split.

    For each (tp, cp) of int[pairs, 2].
    """
    forms = [_forms(model.request, tp, cp) for tp, cp in pairs.tolist()]
    pair = np.repeat(np.arange(len(pairs)), [len(form) for form in forms])
    columns = np.concatenate(forms).T
    layouts = dict(zip(("cp_heads", "cp_ring", "ep", "etp", "slices", "micro_batch_size"), columns, strict=True))
    layouts |= {"tp": pairs[pair, 0], "cp": pairs[pair, 1]}
    layouts["sequence_parallel"] = (layouts["tp"] > 1) * int(sequence_parallel(model.request))
    total = total_s(model, unit_seconds(model.micro_batch(layouts))) / layouts["micro_batch_size"]
    return np.asarray(np.minimum.reduceat(total, _starts(pair)))


def _forms(request: PlanRequest, tp: int, cp: int) -> NDArray[np.int64]:
    """int[forms, 6] every (cp_heads, cp_ring, ep, etp, slices, micro_batch_size) of some mesh of these degrees."""
    batch = request.workload.global_batch
    ranks = [tp * cp * dp for dp in divisors(batch, max(request.cluster.gpus // (tp * cp), 1)).tolist()]
    experts = sorted({form for count in ranks for form in expert_forms(request, tp, count)})
    cuts = [(1, size) for size in divisors(batch, batch).tolist()]
    if is_sliced(request):
        cuts += [(slices, 1) for slices in every_slice_count(request, tp, cp)]
    ways = itertools.product(context_forms(request, tp, cp), experts, cuts)
    return np.array([(*context, *expert, *cut) for context, expert, cut in ways], dtype=np.int64)


def layout_bounds(model: CostModel, costs: LayoutCosts) -> tuple[Array, Array]:
    """Lower bounds of each layout, seconds: of the step, and of its global part (contained in the first)."""
    everything = _global_bounds(model, costs)
    return span_bounds(model, costs.layouts, costs.unit_s) + everything, everything


def span_bounds(model: CostModel, layouts: Mapping[str, NDArray[Any]], unit_s: Mapping[str, Array]) -> Array:
    """Lower bounds of each layout's step without its global part, seconds, from its `unit_seconds`."""
    total = total_s(model, unit_s)
    m, p, v, n = (layouts[name].astype(np.float64) for name in ("num_microbatches", "pp", "vpp", "slices"))
    share, (turns, kept, shared) = _way_share(layouts, unit_s), _turns(layouts, unit_s)
    # A rank's first chunk can be a layer short of its even share of the rank's layers, and lacks its share of the head.
    of_head = layouts["spread"] * unit_s["head"] / (p * v)
    short = (p - 1.0) / n * ((v - 1.0) / v * unit_s["layer"] * share + of_head)
    weighed, split = total, _is_split(layouts)
    if np.any(split):
        # Forwards are the same share of all layers, but not of the ends: those of rank 0 count by its weight alone.
        at_first = unit_s["embedding"] + np.where(head_position(layouts) == 0, unit_s["head"], 0.0)
        weighed = np.where(split, total - (1.0 - kept ** (p - 1.0)) * at_first, total)
    # The first slice passes sooner than the others where attention grows: what it skips is not known here.
    even = (n == 1.0) | (layouts["spread"] > 0)
    ways = np.where(even, share * weighed / (turns * shared) - short, 0.0)
    return np.asarray(np.maximum(ways, m * total / p))


def _turns(layouts: Mapping[str, NDArray[Any]], unit_s: Mapping[str, Array]) -> tuple[Array, Array, Array]:
    """How often a rank takes turns with a micro-batch, `q` and `1 - q^p` for `q = 1 - share/(m turns)`."""
    m, p = (layouts[name].astype(np.float64) for name in ("num_microbatches", "pp"))
    turns = (layouts["vpp"] * layouts["slices"]).astype(np.float64)
    kept = 1.0 - _way_share(layouts, unit_s) / (m * turns)
    return turns, kept, 1.0 - kept**p


def _is_split(layouts: Mapping[str, NDArray[Any]]) -> NDArray[np.bool_]:
    """Which layouts have schedules of a split backward."""
    return np.asarray(SPLIT[layouts["schedule"]])


def _way_share(layouts: Mapping[str, NDArray[Any]], unit_s: Mapping[str, Array]) -> Array:
    """The share of a layer's seconds that is on the way to the ranks behind and back from them, for certain."""
    return np.asarray(np.where(_is_split(layouts), unit_s["layer_forward"] / unit_s["layer"], 1.0))


def option_bounds(model: CostModel, costs: LayoutCosts, options: Rows) -> Array:
    """Lower bounds of each layout's step, seconds, when its stages take some of `options`; infinite where one has none.

    The paths of the schedule's bound that enter at the first stage, weighted so that a second of work counts the same
    at every stage, are a sum over stages. With a price on layers in place of their total (a Lagrangian) each stage
    takes its best option by itself. Any price gives a bound, the best of a few is taken. Hops are left out.
    `options` are those of `stage_options`, sorted by layout and position.
    """
    seconds, unit_price_s = _weighted_seconds(costs, options)
    layout, layers = options["layout"], options["layers"][:, None]
    stage = _starts(layout, options["position"])
    first = _starts(layout[stage])
    found = layout[stage[first]]
    price_s = unit_price_s[:, None] * PRICES
    least = np.minimum.reduceat(seconds[:, None] - price_s[layout] * layers, stage, axis=0)
    span = np.add.reduceat(least, first, axis=0) + price_s[found] * units(model.request.model)
    everything = np.maximum.reduceat(np.minimum.reduceat(options["global_s"], stage), first)
    bound = np.full(len(costs), np.inf)
    complete = np.diff(np.append(first, len(stage))) == costs.layouts["pp"][found]
    bound[found] = np.where(complete, span.max(axis=1) + everything, np.inf)
    return bound


def _weighted_seconds(costs: LayoutCosts, options: Rows) -> tuple[Array, Array]:
    """Share of each option in the weighted paths, and what a layer without recompute adds to them at any stage."""
    m = costs.layouts["num_microbatches"].astype(np.float64)
    layout, behind = options["layout"], costs.layouts["pp"][options["layout"]] - 1 - options["position"]
    share, split = _way_share(costs.layouts, costs.unit_s), _is_split(costs.layouts)[layout]
    turns, kept, shared = _turns(costs.layouts, costs.unit_s)
    decay = kept[layout] ** behind
    work = sum(options[name] for name in MICRO_BATCH_OUTPUTS) + np.where(split, options["last_s"] / m[layout], 0.0)
    slices = costs.layouts["slices"][layout]
    both_ways = sum(options[f"first_chunk_{name}"] for name in MICRO_BATCH_OUTPUTS) / slices
    # The first slice does so much less of the attention that grows (see `attention_excess`).
    both_ways -= sum(options[name] for name in ATTENTION_OUTPUTS if name in options) * (slices - 1) / slices**2
    passing = np.where(split, options["first_chunk_forward_s"], both_ways)
    entry = (options["position"] == 0) * (options["first_s"] + np.where(split, 0.0, options["last_s"]))
    weighted = (share[layout] * decay / turns[layout] * work + (1.0 - decay) * passing) / shared[layout] + entry
    return weighted, share * costs.unit_s["layer"] / (turns * shared)


def _starts(*columns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Rows of sorted columns at which one of them changes, the first row included."""
    changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
    return np.flatnonzero(np.append(len(columns[0]) > 0, changes))


def total_s(model: CostModel, unit_s: Mapping[str, Array]) -> Array:
    """Seconds of one micro-batch in the whole model, from those of a layer, the embedding and the head."""
    return units(model.request.model) * unit_s["layer"] + unit_s["embedding"] + unit_s["head"]


def _global_bounds(model: CostModel, costs: LayoutCosts) -> Array:
    """Lower bound of the global part of a step, seconds: that of a stage of average size.

    It is linear in what a stage holds. Stages may choose their ZeRO modes apart, so every unit counts at its best one.
    """

    def seconds(layers: int, embedding: int, head: int) -> Array:
        return np.stack([_global_s(model, costs, mode, layers, embedding, head) for mode in (UNSHARDED, SHARDED, -1)])

    one, two, opened, whole = seconds(1, 0, 0), seconds(2, 0, 0), seconds(1, 1, 0), seconds(1, 1, 1)
    # Where embedding and head are tied and on one stage, the head adds least: that holds for every stage.
    layer, embedding, head = ((more - less).min(axis=0) for more, less in ((two, one), (opened, one), (whole, opened)))
    constant = (2.0 * one - two).min(axis=0)
    return np.asarray(constant + (units(model.request.model) * layer + embedding + head) / costs.layouts["pp"])


def _global_s(model: CostModel, costs: LayoutCosts, mode: int, layers: int, embedding: int, head: int) -> Array:
    """Global part of a stage of each layout that holds so much, under one ZeRO mode, seconds."""
    count = len(costs)
    holds = {"layers": layers, "has_embedding": embedding, "has_head": head, "zero": mode % len(ZERO_MODES["reshard"])}
    rows = {name: np.full(count, value) for name, value in holds.items()}
    rows |= {"layout": np.arange(count), "recompute": np.zeros(count, dtype=np.int64)}
    return model.stages(costs, rows, "global")["global_s"]


def least_memory(
    model: CostModel, costs: LayoutCosts, outputs: str = "device", *, offload: bool = False
) -> dict[str, Array]:
    """Bytes that some stage of each layout needs at the very least: `device_bytes`, or with "all" every cause.

    Some stage holds an even share of the layers or more; it is costed at the position that keeps least alive, without
    the ends of the model unless there is one stage only, with every sharding of states, all or nothing recomputed.
    What a selective set keeps and restores lies between those two. With `offload`, which tells the bytes of device and
    host alone, everything may be gone as well.
    """
    rows = _even_stage(model, costs.layouts)
    trials = []
    for zero in range(len(ZERO_MODES["zero_stage"])):
        for recompute, share in ((0, 0), (FULL, 1)):
            trial = with_recompute({**rows, "zero": np.full(len(costs), zero)}, recompute, share * rows["layers"])
            trials.append(model.stages(costs, trial, outputs))
            if offload:
                trials.append(least_bytes(model, costs, trial))
    best = np.argmin([values["device_bytes"] for values in trials], axis=0)
    index = np.arange(len(best))
    return {name: np.stack([values[name] for values in trials])[best, index] for name in trials[0]}


def fullest_stage_bounds(model: CostModel, costs: LayoutCosts, cutoff_s: float = np.inf) -> Array:
    """Lower bounds of each layout's step by what its fullest stage must recompute and exchange to fit, seconds.

    Some stage holds an even share of the layers or more; its work, its exchanges and its share of the global part are
    costed at the position that keeps least alive, in the best of the ways that fit. Infinite where none does. Ways
    that take the cutoff or longer without recompute count as if they fit: their memory is not looked at.
    """
    bound = np.full(len(costs), np.inf)
    rows = with_zero_modes(model, costs.layouts, _even_stage(model, costs.layouts))
    seconds = _alone_s(model, costs, with_recompute(rows, 0, np.zeros_like(rows["layers"])))
    beyond = seconds >= cutoff_s
    np.minimum.at(bound, rows["layout"][beyond], seconds[beyond])
    rows, seconds = take(rows, ~beyond), seconds[~beyond]
    plain = plainly_fitting(model, costs, rows)["origin"]
    np.minimum.at(bound, rows["layout"][plain], seconds[plain])
    # Recompute takes longer: only what would be faster without it is of use with it.
    pending = np.setdiff1d(np.flatnonzero(seconds < bound[rows["layout"]]), plain, assume_unique=True)
    options = recomputed_to_fit(model, costs, rows, pending)
    np.minimum.at(bound, options["layout"], _alone_s(model, costs, options))
    return bound


def _alone_s(model: CostModel, costs: LayoutCosts, options: Rows) -> Array:
    """Seconds of a step whose only stage each option is."""
    times = model.stages(costs, options, "times")
    return costs.own_s(options | times) + times["global_s"]


def _even_stage(model: CostModel, layouts: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    p, count = layouts["pp"], len(layouts["pp"])
    layers = -(-units(model.request.model) // p)
    rows = stage_rows(layouts, {"layout": np.arange(count), "position": p - 1, "layers": layers}, model.request.recipe)
    # Chunks are even, rounded down, so that no split can keep less. The last rank keeps least alive; where weight
    # gradients wait, each count is the least of all ranks.
    least = {name: rows[COLUMNS[name]] for name in ("total", "waiting") if name in counted(layouts)}
    if len(least) > 1:
        for mine, live in by_schedule(layouts, rows["layout"], model.request.recipe):
            for name, column in least.items():
                column[mine] = live.least[name]
    alone = (p == 1).astype(np.int64)
    ends = ("has_embedding", "has_head", "live_embedding", "live_head", "waiting_embedding", "waiting_head")
    wide = ("live_wide", "waiting_wide")
    return {
        **rows,
        **{name: rows[name] * alone for name in ends if name in rows},
        **dict.fromkeys(("split_layers", "first_split_layers"), 0 * layers),  # it may be the first stage as well
        **{name: 0 * layers for name in wide if name in rows},
        **{COLUMNS[name]: column for name, column in least.items()},
        "live_layers": least["total"] * rows["chunk_layers"],
        **({"waiting_layers": least["waiting"] * rows["chunk_layers"]} if "waiting" in least else {}),
        "kv_gradient_layers": kv_gradient_layers(layouts, rows["layout"], rows["chunk_layers"]),
    }

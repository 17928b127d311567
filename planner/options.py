"""Stage options: for every position and number of layers, each way to shard states with the recompute that just fits.

More recompute than fits is slower at nothing gained, so of each recompute set only the smallest count that fits is
kept, and of the sets those that are fastest in some chunk. What is left per (layout, position, layers) is the Pareto
front over the seconds of every kind of chunk.
"""

from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.columns import distinct
from cost_models.schedules.slimpipe_memory import kv_gradient_chunk_slices
from cost_models.specs.recipe import FrameworkRecipe
from planner.capability import without_the_inexpressible
from planner.every_offload import every_offload
from planner.fitting import (
    FULL,
    Rows,
    device_capacity,
    fitting,
    plainly_fitting,
    recomputed_to_fit,
    searched_sets,
    with_recompute,
)
from planner.layout_costs import LayoutCosts
from planner.live import Live, live_counts
from planner.offload import kept_on_device, offloaded
from planner.predict import ATTENTION_OUTPUTS, MICRO_BATCH_OUTPUTS, CostModel
from planner.space import SCHEDULES, SPLIT, ZERO_MODES, chunk_layers, head_position, joined, take
from solver.pareto import front

__all__ = [
    "CHUNK_KINDS",
    "TABLE_FIELDS",
    "affordable",
    "by_schedule",
    "chunk_rows",
    "chunk_seconds",
    "counted",
    "positions",
    "stage_options",
    "stage_rows",
    "with_zero_modes",
]

# Rows that share a stage at which it pays to look for them.
ROWS_PER_STAGE = 2.0
# What an action table is made from.
TABLE_FIELDS = ("schedule", "pp", "vpp", "num_microbatches", "group_size", "slices")

Array = NDArray[np.float64]

# Kinds of chunk of a stage: the one at either end, and one between.
CHUNK_KINDS = ("first", "plain", "last")
LIVE_FIELDS = tuple(field.name for field in fields(Live))
# Live counts as columns of rows.
COLUMNS = {
    "total": "live_total",
    "wide": "live_wide",
    "first": "live_embedding",
    "last": "live_head",
    "waiting": "waiting_total",
    "waiting_wide": "waiting_wide",
    "waiting_first": "waiting_embedding",
    "waiting_last": "waiting_head",
}


def positions(lower: NDArray[np.int64], upper: NDArray[np.int64]) -> Rows:
    """Rows (layout, position, layers): every number of layers in the window of every position."""
    counts = np.maximum(upper - lower + 1, 0)
    layout, position = np.nonzero(counts)
    repeats = counts[layout, position]
    offset = np.arange(repeats.sum()) - np.repeat(np.cumsum(repeats) - repeats, repeats)
    layout, position = np.repeat(layout, repeats), np.repeat(position, repeats)
    return {"layout": layout, "position": position, "layers": lower[layout, position] + offset}


def stage_rows(layouts: Mapping[str, NDArray[Any]], rows: Rows, recipe: FrameworkRecipe) -> Rows:
    """The rows with what their stage holds and keeps alive: ends of the model, chunks, live counts."""
    layout, position, layers = rows["layout"], rows["position"], rows["layers"]
    vpp = layouts["vpp"][layout]
    base, extra = np.divmod(layers, vpp)
    live = {name: np.zeros(len(layout), dtype=np.int64) for name in counted(layouts)}
    for mine, counts in by_schedule(layouts, layout, recipe):
        at = position[mine]
        for name, column in live.items():
            count = getattr(counts, name)
            column[mine] = count[at] if count.ndim == 1 else count[at, extra[mine]]
        if layouts["spread"][layout[mine[0]]]:  # every rank waits with its share of the head for the last one
            live["last"][mine] = counts.last[-1]
    head_rank = (position == head_position(layouts)[layout]).astype(np.int64)
    has_embedding, has_head = _ends(layouts, layout, position == 0, head_rank)
    ends = {
        "first": has_embedding,
        "last": has_head > 0,
        "waiting_first": has_embedding,
        "waiting_last": has_head,
    }
    waiting = {"waiting_layers": live["waiting"] * base + live["waiting_wide"]} if "waiting" in live else {}
    return {
        **rows,
        "vpp": vpp,
        "chunk_layers": base,
        "wide_chunks": extra,
        **{COLUMNS[name]: column * ends.get(name, 1) for name, column in live.items()},
        "live_layers": live["total"] * base + live["wide"],
        **waiting,
        "has_embedding": has_embedding,
        "has_head": has_head,
        "head_rank": head_rank,
        "kv_gradient_layers": kv_gradient_layers(layouts, layout, base + (extra > 0)),
    }


def _ends(
    layouts: Mapping[str, NDArray[Any]], layout: NDArray[np.int64], first_rank: NDArray[Any], head_rank: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """What rows hold of the embedding and of the head: one rank all of it, or every rank a share where it is spread."""
    spread = layouts["spread"][layout] > 0
    ends = first_rank.astype(np.int64), head_rank
    if not spread.any():
        return ends
    share = 1.0 / layouts["pp"][layout]
    embedding, head = (np.where(spread, share, held) for held in ends)
    return embedding, head


def with_stage_numbers(rows: Rows) -> Rows:
    """The rows with a column `stage`, the same for rows that differ at most in their rank and what is alive on it.

    Where most rows are stages of their own, as they are.
    """
    first, stage = distinct(("layout", "layers", "has_embedding", "has_head", "head_rank"), rows, len(rows["layout"]))
    return {**rows, "stage": stage} if len(stage) > ROWS_PER_STAGE * len(first) else rows


def kv_gradient_layers(
    layouts: Mapping[str, NDArray[Any]], layout: NDArray[np.int64], chunk_layers: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Slices of layers whose keys and values have gradients to add up, for rows with so many layers a chunk."""
    cut = (layouts[name][layout] for name in ("vpp", "slices", "pp"))
    return np.asarray(kv_gradient_chunk_slices(*cut) * chunk_layers)


def counted(layouts: Mapping[str, NDArray[Any]]) -> tuple[str, ...]:
    """The names of the live counts that tell these layouts apart: without a split backward nothing waits."""
    return LIVE_FIELDS if np.any(SPLIT[layouts["schedule"]]) else LIVE_FIELDS[:4]


def by_schedule(
    layouts: Mapping[str, NDArray[Any]], layout: NDArray[np.int64], recipe: FrameworkRecipe
) -> Iterator[tuple[Any, Live]]:
    """Of layouts named by index: those that run alike, as indices into `layout`, and their live counts."""
    first, which = distinct(TABLE_FIELDS, layouts, len(layouts["pp"]))
    kind = which[layout]
    order = np.argsort(kind, kind="stable")
    ends = np.searchsorted(kind[order], np.arange(len(first) + 1)).tolist()
    kinds = zip(*(layouts[name][first].tolist() for name in TABLE_FIELDS), strict=True)
    for start, end, (schedule, *cut) in zip(ends, ends[1:], kinds, strict=False):
        if end > start:
            counts = live_counts(SCHEDULES[schedule], *cut, splits_first_stage=recipe.splits_first_stage)
            yield order[start:end], counts


def stage_options(model: CostModel, costs: LayoutCosts, rows: Rows, budget_s: Array | None = None) -> Rows:
    """The options worth having for rows of `positions`, with their seconds (TIME_OUTPUTS) and bytes.

    Only options that fit are left, non-dominated within their (layout, position, layers), in order of preference.
    With a budget for every layout, float[layouts], only those whose stage by itself can be done within it; and where
    the request asks for every way to offload, these are among them, else only where nothing fits without.
    """
    candidates = _candidates(model, costs, rows, budget_s)
    return _non_dominated(candidates | chunk_seconds(model, costs, candidates))


def affordable(model: CostModel, costs: LayoutCosts, rows: Rows, budget_s: Array) -> NDArray[np.bool_]:
    """Which rows of `positions` have an option on the device that can be done within the budget of their layout."""
    found = np.zeros(len(rows["layout"]), dtype=bool)
    rows = _in_budget(model, costs, {**rows, "number": np.arange(len(found))}, budget_s)
    found[plainly_fitting(model, costs, rows)["number"]] = True
    # One option is enough: nothing else is asked of those that have one.
    others = recomputed_to_fit(model, costs, rows, np.flatnonzero(~found[rows["number"]]))
    own_s = costs.own_s(others | model.stages(costs, others, "times"))
    found[others["number"][own_s < budget_s[others["layout"]]]] = True
    return found


def _in_budget(model: CostModel, costs: LayoutCosts, rows: Rows, budget_s: Array | None) -> Rows:
    """The rows of `positions` for every ZeRO mode, without those over the budget: recompute would take longer yet."""
    rows = stage_rows(costs.layouts, rows, model.request.recipe)
    if model.request.recipe.host_runs_ahead:  # else ranks differ in their hops, too
        rows = with_stage_numbers(rows)
    rows = with_zero_modes(model, costs.layouts, rows)
    if budget_s is None or np.all(budget_s == np.inf):
        return rows
    plain = with_recompute(rows, 0, np.zeros_like(rows["layers"]))
    own_s = costs.own_s(plain | model.stages(costs, plain, "times"))
    return take(rows, own_s < budget_s[rows["layout"]])


def _candidates(model: CostModel, costs: LayoutCosts, rows: Rows, budget_s: Array | None) -> Rows:
    """The options for rows of `positions` that fit, within the budget if there is one; with seconds and bytes."""
    rows = _in_budget(model, costs, rows, budget_s)
    candidates = fitting(model, costs, rows)
    every = np.arange(len(rows["layout"]))
    unfitting = np.setdiff1d(every, candidates["origin"])
    pressed = np.setdiff1d(every, candidates["origin"][candidates["recompute"] == 0])
    candidates |= model.stages(costs, candidates, "times")
    candidates = take(candidates, _fastest_sets(candidates))
    if model.offload:
        if budget_s is not None and "offload" in model.request.search:
            under_sets = _under_every_set(model, take(rows, pressed))
            away = every_offload(model, costs, under_sets, budget_s, device_capacity(model))
        else:
            away = _offloaded(model, costs, take(rows, unfitting))
        candidates = joined([kept_on_device(candidates), away])
    if budget_s is not None:
        candidates = take(candidates, costs.own_s(candidates) < budget_s[candidates["layout"]])
    return candidates


def _under_every_set(model: CostModel, rows: Rows) -> Rows:
    """The rows under every recompute set, the full one of every number of layers of a chunk."""
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    parts = []
    for recompute in searched_sets(model):
        if recompute != FULL:
            parts.append(with_recompute(rows, recompute, whole if recompute else 0 * whole))
            continue
        few = whole if model.request.recompute == "full" else np.ones_like(whole)
        for count in range(1, int(whole.max(initial=0)) + 1):
            some = np.flatnonzero((few <= count) & (count <= whole))
            parts.append(with_recompute(take(rows, some), FULL, np.full(len(some), count)))
    return joined([{**part, "origin": np.zeros(len(part["layout"]), dtype=np.int64)} for part in parts])


def _offloaded(model: CostModel, costs: LayoutCosts, rows: Rows) -> Rows:
    """The rows with what must be offloaded for them to fit, recomputing nothing or every layer, with their seconds."""
    whole = rows["chunk_layers"] + (rows["wide_chunks"] > 0)
    kept = kept_on_device(with_recompute(rows, 0, 0 * whole)) | {"device_bytes": 0.0 * whole}
    parts = [take(kept, [])]
    for recompute, layers in ((0, 0 * whole), (FULL, whole)):
        if recompute not in searched_sets(model):
            continue
        whole_layers = with_recompute(rows, recompute, layers)
        parts += [part for part, _ in offloaded(model, costs, whole_layers, device_capacity(model))]
    candidates = joined([{**part, "origin": np.zeros(len(part["layout"]), dtype=np.int64)} for part in parts])
    return candidates | model.stages(costs, candidates, "times")


def with_zero_modes(model: CostModel, layouts: Mapping[str, NDArray[Any]], rows: Rows) -> Rows:
    """Each row once for every ZeRO mode: the unsharded one alone where there is nothing to shard over.

    Where the request asks for one ZeRO stage, once for the modes of that alone, whatever there is to shard over.
    """
    wanted = model.request.zero_stage
    modes = len(ZERO_MODES["zero_stage"])
    count = len(rows["layout"])
    repeated = {name: np.repeat(column, modes) for name, column in rows.items()}
    repeated["zero"] = np.tile(np.arange(modes), count)
    dp, shard = layouts["dp"][repeated["layout"]], layouts["dp_shard"][repeated["layout"]]
    # ZeRO-0 knows no shard group: it is listed once, under the layout whose group is all of dp.
    useful = np.where(repeated["zero"] == 0, shard == dp, dp * layouts["cp"][repeated["layout"]] > 1)
    if wanted is not None:
        useful = (ZERO_MODES["zero_stage"][repeated["zero"]] == wanted) & ((wanted > 0) | useful)
    return without_the_inexpressible(model, layouts, take(repeated, useful), "stage")


def chunk_rows(rows: Rows, chunk: NDArray[np.int64]) -> Rows:
    """The rows of chunk number `chunk` of each stage row, for the cost of that chunk alone."""
    layers = chunk_layers(rows["layers"], rows["vpp"], chunk, rows["head_rank"] > 0)
    return {
        **{name: column for name, column in rows.items() if name != "stage"},
        "chunk": chunk,
        "layers": layers,
        "recompute_layers": np.minimum(rows["recompute_per_chunk"], layers),
        "has_embedding": rows["has_embedding"] * (chunk == 0),
        "has_head": rows["has_head"] * (chunk == rows["vpp"] - 1),
    }


def _fastest_sets(candidates: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """Of each origin row, the candidate of least seconds a micro-batch; the earlier set among equals.

    Where chunks differ in layers, the full set stands apart: it covers a number of layers, the others a share.
    """
    seconds = candidates["forward_s"] + candidates["input_grad_s"] + candidates["weight_grad_s"]
    apart = (candidates["recompute"] == FULL) & (candidates["wide_chunks"] > 0)
    group = 2 * candidates["origin"] + apart
    if ATTENTION_OUTPUTS[1] in candidates:  # sets that differ in attention are not compared by their sums
        grows = candidates[ATTENTION_OUTPUTS[1]] > 0
        group = np.where(grows, 2 * (candidates["origin"].max(initial=0) + 1) + np.arange(len(group)), group)
    order = np.lexsort((candidates["recompute"], seconds, group))
    group = group[order]
    first = np.ones(len(order), dtype=bool)
    first[1:] = group[1:] != group[:-1]
    return order[first]


def chunk_seconds(model: CostModel, costs: LayoutCosts, candidates: Rows) -> Rows:
    """Columns with the seconds of every kind of chunk that a stage has: first, last, and neither.

    Of the chunks that are neither, those as wide as the first and the last are covered by these unless they hold an
    end of the model; `plain` is the one beside that. A stage of a single chunk is its own first, plain and last.
    """
    several = np.flatnonzero(candidates["vpp"] > 1)
    rows = take(candidates, several)
    last = rows["vpp"] - 1
    columns: Rows = {}
    for kind, chunk in zip(CHUNK_KINDS, (0 * last, np.where(rows["head_rank"] > 0, last - 1, 1), last), strict=True):
        # Of one stage a kind of chunk is the same.
        of_chunk = chunk_rows(rows, chunk) | {name: rows[name] for name in ("stage",) if name in rows}
        seconds = model.stages(costs, of_chunk, "chunk") if len(several) else {}
        for name in MICRO_BATCH_OUTPUTS:
            column = candidates[name].copy()
            column[several] = seconds.get(name, 0.0)
            columns[f"{kind}_chunk_{name}"] = column
    return columns


def _non_dominated(options: Rows) -> Rows:
    """The Pareto front of each (layout, position, layers), sorted by those and then by preference."""
    if not len(options["layout"]):
        return options
    most = int(options["layers"].max()) + 1
    group = (options["layout"] * (int(options["position"].max()) + 1) + options["position"]) * most + options["layers"]
    # Weight gradients neither recompute nor exchange: they are equal in a group.
    chunks = [f"{kind}_chunk_{name}" for kind in CHUNK_KINDS for name in ("forward_s", "input_grad_s")]
    seconds = [options[name] for name in (*chunks, "first_s", "last_s", "global_s")]
    # More attention in as long a pass makes late slices longer, less makes early ones longer: only equals are compared.
    seconds += [sign * options[name] for name in ATTENTION_OUTPUTS if name in options for sign in (1, -1)]
    on_host = ("host_bytes",) if "host_bytes" in options else ()  # stages share their nodes' memory
    seconds += [options[name] for name in on_host]
    options = take(options, front(np.column_stack(seconds), group))
    preference = [options[name] for name in ("zero", "recompute_layers", *on_host, "layers", "position")]
    return take(options, np.lexsort((*preference, options["layout"])))

"""Every legal layout as a row of integers: columns, never objects."""

import itertools
from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models import schedules
from cost_models.specs.cluster import ClusterSpec
from planner import rules
from planner.document import Configuration, PlanDocument
from planner.pipelines import (
    BATCH_FIELDS,
    ONE_CHUNK,
    batch_ways,
    deepest,
    divisors,
    is_sliced,
    schedule_names,
    sliced_schedules,
    units,
)
from planner.request import PlanRequest
from planner.rules import SCHEDULES

__all__ = [
    "CONTEXT_TYPES",
    "LAYOUT_FIELDS",
    "OFFLOADS",
    "ONE_CHUNK",
    "RANK_ORDERS",
    "RECOMPUTE_SETS",
    "SCHEDULES",
    "SPLIT",
    "ZERO_MODES",
    "Columns",
    "chunk_layers",
    "context_forms",
    "context_type",
    "deepest",
    "divisors",
    "expert_forms",
    "first_of_each",
    "group_size",
    "head_position",
    "is_sliced",
    "joined",
    "known_values",
    "layouts",
    "meshes",
    "one_factor_away",
    "schedule_names",
    "sequence_parallel",
    "take",
    "units",
]

Columns = dict[str, NDArray[np.int64]]

CONTEXT_TYPES, RANK_ORDERS = rules.CONTEXT_TYPES, rules.RANK_ORDERS
MESH = ("tp", "cp", "pp", "dp")
LAYOUT_FIELDS = (
    "tp",
    "sequence_parallel",
    "cp",
    "cp_heads",
    "cp_ring",
    "ep",
    "etp",
    "pp",
    "vpp",
    "dp",
    "dp_shard",
    "dp_replicate",
    "rank_order",
    "micro_batch_size",
    "num_microbatches",
    "schedule",
    "slices",
    "group_size",
)
_OF_BATCHES = [LAYOUT_FIELDS.index(name) for name in BATCH_FIELDS]
_OF_GROUPS = [index for index, name in enumerate(LAYOUT_FIELDS) if name not in BATCH_FIELDS]

# Per stage: how states are sharded, in order of preference at equal cost. Columns as the cost symbols name them.
ZERO_MODES: Mapping[str, NDArray[np.int64]] = {
    "zero_stage": np.array([0, 1, 2, 3, 3]),
    "reshard": np.array([0, 0, 0, 0, 1]),
    "shard_optimizer": np.array([0, 1, 1, 1, 1]),
    "shard_gradients": np.array([0, 0, 1, 1, 1]),
    "shard_weights": np.array([0, 0, 0, 1, 1]),
}

# Per stage: what is recomputed, in order of preference at equal cost. A selective set covers all layers of a stage,
# as launchers have it; `full` covers the fewest layers that fit.
RECOMPUTE_SETS: tuple[tuple[str, ...], ...] = (
    (),
    ("norm",),
    ("activation",),
    ("norm", "activation"),
    ("core_attention",),
    ("mla_up_proj",),
    ("norm", "activation", "mla_up_proj"),
    ("mlp",),
    ("norm", "mlp"),
    ("shared_experts",),
    ("moe",),
    ("norm", "moe", "shared_experts", "mla_up_proj"),
    ("full",),
)

# Per stage: what lives on the host, as fractions. Columns as the cost symbols name them.
OFFLOADS = ("offload_weights", "offload_gradients", "offload_optimizer", "offload_activations")


def take(columns: Mapping[str, NDArray[Any]], rows: Any) -> dict[str, NDArray[Any]]:
    """The columns, restricted to `rows` (indices, a mask or a slice)."""
    if isinstance(rows, np.ndarray) and rows.dtype == np.bool_:  # a column at a time, a mask is several times dearer
        rows = np.flatnonzero(rows)
    return {name: column[rows] for name, column in columns.items()}


def joined(parts: Sequence[Mapping[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """The columns of several tables, which have the same ones, below each other."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def first_of_each(columns: Mapping[str, NDArray[Any]], names: Sequence[str], count: int) -> NDArray[np.int64]:
    """Indices, ascending, of the first `count` rows of every combination of the named columns."""
    _, which = np.unique(np.column_stack([columns[name] for name in names]), axis=0, return_inverse=True)
    which = which.reshape(-1)
    order = np.argsort(which, kind="stable")
    place = np.arange(len(order)) - np.searchsorted(which[order], which[order])
    return np.sort(order[place < count])


def known_values(job: PlanRequest | PlanDocument | Configuration) -> dict[str, int]:
    """What the rules read of a job: facts of its model, its workload and its cluster."""
    model, moe = job.model, job.model.moe
    return {
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "experts": moe.experts if moe else 1,
        "expert_ffn": moe.expert_ffn if moe else 1,
        "shared_ffn": moe.shared_ffn if moe else 0,
        "layers": units(model),
        "seq_len": job.workload.seq_len,
        "global_batch": job.workload.global_batch,
        "gpus": job.cluster.gpus,
        "domain": job.cluster.tiers[0].domain_gpus or job.cluster.gpus,
        "vocab": model.vocab,
        "tied": int(model.tie_embeddings),
        "max_seq_len": model.max_seq_len,
        "model_layers": model.layers,
        "moe_layers": model.moe_layers,
        "windowed_layers": sum(kind.window > 0 for kind in model.layer_kinds),
        "precision": rules.PRECISIONS.index(job.workload.precision),
        "optimizer": rules.OPTIMIZERS.index(job.workload.optimizer),
    }


def sequence_parallel(request: PlanRequest) -> bool:
    """Whether TP groups split norms and residuals: where the recipe does and the target can."""
    smallest = {"tp": 1, "cp": 1, "pp": 1, "dp": 1, "sequence_parallel": 1}
    can = rules.expressible({**known_values(request), **smallest}, request.target, "mesh")
    return request.recipe.sequence_parallel and bool(can)


def meshes(request: PlanRequest) -> Columns:
    """Columns tp, cp, pp, dp: every legal mesh on at most the cluster's GPUs; idle GPUs are allowed."""
    return counted_meshes(request)[0]


def counted_meshes(request: PlanRequest) -> tuple[Columns, int]:
    """As `meshes`, and how many more there would be if the target could express them."""
    cluster, workload = request.cluster, request.workload
    sharded = int(sequence_parallel(request))
    known = {**known_values(request), "sequence_parallel": sharded}
    tp = np.arange(1, _largest_tensor_parallel(cluster) + 1)
    tp = tp[rules.legal({**known, "tp": tp}, *_TENSOR_PARALLEL_RULES)]
    cp = divisors(max(workload.seq_len // 2, 1), cluster.gpus)
    pp = np.arange(request.least_pp, deepest(request) + 1)
    dp = divisors(workload.global_batch, cluster.gpus)
    pairs = np.stack([axis.reshape(-1) for axis in np.meshgrid(tp, cp, indexing="ij")])
    pairs = pairs[:, rules.legal({**known, "tp": pairs[0], "cp": pairs[1]}, "cp-splits-sequence")]
    index, pp, dp = (axis.reshape(-1) for axis in np.meshgrid(np.arange(pairs.shape[1]), pp, dp, indexing="ij"))
    columns = {"tp": pairs[0][index], "cp": pairs[1][index], "pp": pp, "dp": dp}
    legal = _held(request, take(columns, np.prod(list(columns.values()), axis=0) <= cluster.gpus))
    columns = _expressible(request, legal, {"sequence_parallel": (legal["tp"] > 1) * sharded}, "mesh")
    return columns, len(legal["pp"]) - len(columns["pp"])


def context_forms(request: PlanRequest, tp: int, cp: int) -> list[tuple[int, int]]:
    """(cp_heads, cp_ring) of each way to split the context: all-gather, ring, Ulysses, hierarchical."""
    if cp == 1:
        return [(1, 0)]
    inside = max((request.cluster.tiers[0].domain_gpus or request.cluster.gpus) // tp, 1)
    switched = [int(d) for d in divisors(cp, inside)]
    wanted = switched if "groups" in request.search else switched[-1:]
    forms = [(1, 0), (1, 1), (cp, 0), *((d, 1) for d in wanted if 1 < d < cp)]
    known = {**known_values(request), "tp": tp, "cp": cp}
    return [form for form in forms if rules.legal({**known, "cp_heads": form[0]}, "cp-switches-heads")]


def expert_forms(request: PlanRequest, tp: int, ranks: int) -> list[tuple[int, int]]:
    """(ep, etp) of each way to deal experts to the `ranks` ranks of a stage; (1, 1) for a model without."""
    if request.model.moe is None:
        return [(1, 1)]
    slices = {1, tp}
    if "groups" in request.search:
        slices.update(divisors(request.model.moe.expert_ffn, _largest_tensor_parallel(request.cluster)).tolist())
    every = divisors(request.model.moe.experts, ranks)
    etp, ep = (axis.reshape(-1) for axis in np.meshgrid(sorted(slices), every, indexing="ij"))
    known = {**known_values(request), "tp": ranks, "cp": 1, "dp": 1}
    can = rules.legal({**known, "ep": ep, "etp": etp}, *_EXPERT_RULES)
    return list(zip(ep[can].tolist(), etp[can].tolist(), strict=True))


def one_factor_away(mesh: Mapping[str, int], meshes: Columns) -> NDArray[np.bool_]:
    """Which meshes use as many GPUs as `mesh` and differ by one prime factor moved from one degree to another."""
    same_size = np.prod([meshes[name] for name in MESH], axis=0) == np.prod([mesh[name] for name in MESH])
    ratios = [meshes[name] / mesh[name] for name in MESH]
    moved = np.sum([ratio != 1.0 for ratio in ratios], axis=0) == 2
    factor = np.max(ratios, axis=0)
    prime = np.array([all(value % d for d in range(2, int(value**0.5) + 1)) for value in factor])
    return np.asarray(same_size & moved & (factor == np.round(factor)) & prime)


def layouts(request: PlanRequest, mesh: Columns) -> Columns:
    """Every legal layout on the given meshes, with the columns of LAYOUT_FIELDS and the strides of its groups."""
    return counted_layouts(request, mesh)[0]


def counted_layouts(request: PlanRequest, mesh: Columns) -> tuple[Columns, int]:
    """As `layouts`, and how many more there would be if the target could express them."""
    batches, sharded = cache(partial(batch_ways, request)), sequence_parallel(request)
    parts = [np.empty((len(LAYOUT_FIELDS), 0), dtype=np.int64)]
    for tp, cp, pp, dp in zip(*(mesh[name].tolist() for name in MESH), strict=True):
        groups = _rank_groups(request, tp, cp, pp, dp, sharded)
        ways = batches(pp, dp, sliced_schedules(request, tp, cp, pp))
        table = np.empty((len(LAYOUT_FIELDS), len(groups), len(ways)), dtype=np.int64)
        table[_OF_GROUPS] = groups.T[:, :, None]
        table[_OF_BATCHES] = ways.T[:, None, :]
        parts.append(table.reshape(len(LAYOUT_FIELDS), -1))
    legal = _held(request, dict(zip(LAYOUT_FIELDS, np.concatenate(parts, axis=1), strict=True)))
    columns = _expressible(request, legal, {"cp_type": context_type(legal)}, "mesh", "layout")
    return with_strides(columns), len(legal["pp"]) - len(columns["pp"])


def _rank_groups(request: PlanRequest, tp: int, cp: int, pp: int, dp: int, sharded: bool) -> NDArray[np.int64]:
    """int[ways, 12]: the layout columns, those of batches left out, of each way to group the ranks of a mesh."""
    ways = itertools.product(
        context_forms(request, tp, cp),
        expert_forms(request, tp, tp * cp * dp),
        _data_groups(request, tp, cp, pp, dp),
    )
    rows = [
        (tp, int(tp > 1 and sharded), cp, *context, *experts, pp, dp, shard, dp // shard, order)
        for context, experts, (order, shard) in ways
    ]
    return np.array(rows, dtype=np.int64)


def _expressible(
    request: PlanRequest, columns: Columns, more: Mapping[str, NDArray[Any]], *scopes: rules.Scope
) -> Columns:
    """The rows that the target can express by its rules of some scopes, which also read `more`."""
    can = rules.expressible({**known_values(request), **columns, **more}, request.target, *scopes)
    return take(columns, np.broadcast_to(can, len(columns["tp"])))


def _held(request: PlanRequest, columns: Columns) -> Columns:
    """The rows that have the values which the request fixes, of those columns that there are."""
    if not request.fixed:
        return columns
    values = dict(columns)
    if "cp_heads" in columns:
        values |= {"cp_type": context_type(columns), "group_size": group_size(columns)}
    held = np.ones(len(columns["tp"]), dtype=bool)
    for name in request.fixed.keys() & values.keys():
        held &= values[name] == request.fixed[name]
    return take(columns, held)


def context_type(columns: Mapping[str, Any]) -> Any:
    """The index of CONTEXT_TYPES of each layout."""
    across, switched = columns["cp_heads"] < columns["cp"], columns["cp_heads"] > 1
    return np.where(switched, np.where(across, 3, 2), columns["cp_ring"])


def _data_groups(request: PlanRequest, tp: int, cp: int, pp: int, dp: int) -> list[tuple[int, int]]:
    """(rank order, size of the sharding group) pairs of a mesh; experts know one of each."""
    if request.model.moe is not None:
        return [(0, dp)]
    orders = range(len(RANK_ORDERS) if pp > 1 and dp > 1 else 1)
    strides = (tp * cp, tp * cp * pp)
    return [(order, shard) for order in orders for shard in _shard_sizes(request, dp, strides[order])]


def with_strides(columns: Columns) -> Columns:
    """The layout columns, of each group the distance in rank numbers between neighbours, and what slices share out.

    States are sharded over context-parallel ranks too: with pipeline ranks outside they are the nearest of the shard
    group, with pipeline ranks between the distance is the group's mean.
    """
    inner = columns["tp"] * columns["cp"]
    pipeline_outside = columns["rank_order"] == 0
    dp_stride = np.where(pipeline_outside, columns["tp"], columns["tp"] * columns["pp"])
    stage_ranks = inner * columns["dp"]
    expert_stride = columns["ep"] * columns["etp"]
    # Runs that were measured elsewhere have no column for their schedule: it is none that spreads slices.
    spread = np.equal(columns["schedule"], SCHEDULES.index("slimpipe")) if "schedule" in columns else False
    return {
        **columns,
        "dp_stride": dp_stride,
        "replicate_stride": dp_stride * columns["cp"] * columns["dp_shard"],
        "pp_stride": np.where(pipeline_outside, stage_ranks, inner),
        "expert_shard": stage_ranks // expert_stride,
        "expert_stride": expert_stride,
        "world": stage_ranks * columns["pp"],
        "spread": (spread & (columns["pp"] > 1)).astype(np.int64),
    }


def head_position(layouts: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    """The pipeline rank that holds the head, as its last chunk; the embedding is in the first chunk of rank 0."""
    return np.asarray(np.where(_V_SHAPED[layouts["schedule"]], 0, layouts["pp"] - 1))


def group_size(layouts: Mapping[str, Any]) -> NDArray[np.int64]:
    """Micro-batches that an interleaved layout takes through a chunk in a row; 0 for other schedules. Elementwise."""
    usual = np.minimum(layouts["pp"], layouts["num_microbatches"])
    size = np.where(np.equal(layouts["group_size"], 0), usual, layouts["group_size"])
    return np.asarray(np.where(np.equal(layouts["schedule"], SCHEDULES.index("interleaved")), size, 0))


def chunk_layers(layers: ArrayLike, vpp: ArrayLike, chunk: ArrayLike, ends_model: ArrayLike) -> NDArray[np.int64]:
    """Layers of chunk number `chunk` of stages that hold `layers` layers in `vpp` chunks; elementwise.

    As even as they go. The chunk that also holds the head, a rank's last, is among the smaller ones, as in Llama 3's
    balanced pipeline: where the stage `ends_model` the wider chunks come first, elsewhere last, so that the chunk that
    holds the embedding is a smaller one too, unless the head is on its rank.
    """
    base, extra = np.divmod(layers, vpp)
    wide = np.where(ends_model, np.less(chunk, extra), np.greater_equal(chunk, vpp - extra))
    return np.asarray(base + wide, dtype=np.int64)


SPLIT = np.array([name in schedules.SPLIT for name in SCHEDULES])
"""Which of SCHEDULES have a split backward."""
_V_SHAPED = np.array([name in schedules.V_SHAPED for name in SCHEDULES])

_TENSOR_PARALLEL_RULES = (
    "tp-divides-heads",
    "tp-divides-ffn",
    "tp-divides-shared-ffn",
    "tp-splits-kv-heads",
    "tp-divides-sequence",
    "tp-inside-domain",
)
_EXPERT_RULES = ("ep-divides-experts", "etp-divides-expert-ffn", "experts-fill-stage")


def _largest_tensor_parallel(cluster: ClusterSpec) -> int:
    domain = cluster.tiers[0].domain_gpus or cluster.gpus
    return min(domain, cluster.gpus)


def _shard_sizes(request: PlanRequest, dp: int, stride: int) -> list[int]:
    """Sizes of the sharding group: the whole of dp, and the largest that stays inside each network tier (HSDP).

    And the one that the request fixes.
    """
    fixed = request.fixed.get("dp_shard", dp // request.fixed.get("dp_replicate", 1))
    sizes = {dp, *(size for size in divisors(dp, dp).tolist() if size == fixed)}
    if "groups" in request.search:
        sizes.update(size for size in divisors(dp, dp).tolist() if size > 1)
    for tier in request.cluster.tiers:
        reach = (tier.domain_gpus or request.cluster.gpus) // stride
        inside = [int(d) for d in divisors(dp, max(reach, 1)) if d > 1]
        sizes.update(inside[-1:])
    return sorted(sizes, reverse=True)

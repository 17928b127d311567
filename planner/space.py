"""Every legal layout as a row of integers: columns, never objects."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models.specs.cluster import ClusterSpec
from planner import rules
from planner.request import PlanRequest

__all__ = [
    "LAYOUT_FIELDS",
    "NOT_SEARCHED",
    "RANK_ORDERS",
    "RECOMPUTE_SETS",
    "SCHEDULES",
    "ZERO_MODES",
    "Columns",
    "chunk_layers",
    "divisors",
    "layouts",
    "meshes",
    "one_factor_away",
    "take",
]

Columns = dict[str, NDArray[np.int64]]

SCHEDULES = ("1f1b", "interleaved", "gpipe")
RANK_ORDERS = ("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")
MESH = ("tp", "pp", "dp")
LAYOUT_FIELDS = (
    "tp",
    "sequence_parallel",
    "cp",
    "pp",
    "vpp",
    "dp",
    "dp_shard",
    "dp_replicate",
    "rank_order",
    "micro_batch_size",
    "num_microbatches",
    "schedule",
)

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
    ("mlp",),
    ("norm", "mlp"),
    ("full",),
)

NOT_SEARCHED = (
    "context parallelism (cp 1)",
    "expert parallelism (dense models)",
    "offload of weights, gradients, optimizer states and activations",
    "tensor parallelism beyond the innermost network tier",
    "shard groups other than all of DP and the most of it that stays inside a network tier",
)


def take(columns: Mapping[str, NDArray[Any]], rows: Any) -> dict[str, NDArray[Any]]:
    """The columns, restricted to `rows` (indices or a mask)."""
    return {name: column[rows] for name, column in columns.items()}


def meshes(request: PlanRequest) -> Columns:
    """Columns tp, pp, dp: every legal mesh on at most the cluster's GPUs; idle GPUs are allowed."""
    model, cluster, workload = request.model, request.cluster, request.workload
    tp = np.arange(1, _largest_tensor_parallel(cluster) + 1)
    known = {
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "seq_len": workload.seq_len,
    }
    tp = tp[rules.legal({**known, "tp": tp}, *_TENSOR_PARALLEL_RULES)]
    pp = np.arange(1, min(model.layers, cluster.gpus) + 1)
    dp = divisors(workload.global_batch, cluster.gpus)
    grid = np.meshgrid(tp, pp, dp, indexing="ij")
    columns = {name: axis.reshape(-1) for name, axis in zip(("tp", "pp", "dp"), grid, strict=True)}
    return take(columns, columns["tp"] * columns["pp"] * columns["dp"] <= cluster.gpus)


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
    rows: list[tuple[int, ...]] = []
    for tp, pp, dp in zip(mesh["tp"].tolist(), mesh["pp"].tolist(), mesh["dp"].tolist(), strict=True):
        sequence_parallel = int(tp > 1 and request.recipe.sequence_parallel)
        per_rank = request.workload.global_batch // dp
        for order in range(len(RANK_ORDERS) if pp > 1 and dp > 1 else 1):
            stride = tp if order == 0 else tp * pp
            for shard in _shard_sizes(request.cluster, dp, stride):
                for size in divisors(per_rank, per_rank).tolist():
                    for vpp, schedule in _schedules(request, pp, per_rank // size):
                        rows.append(
                            (tp, sequence_parallel, 1, pp, vpp, dp, shard, dp // shard, order)
                            + (size, per_rank // size, schedule)
                        )
    table = np.array(rows, dtype=np.int64).reshape(-1, len(LAYOUT_FIELDS))
    columns = {name: table[:, index] for index, name in enumerate(LAYOUT_FIELDS)}
    return with_strides(columns)


def with_strides(columns: Columns) -> Columns:
    """The layout columns and, of each group, the distance in rank numbers between neighbours."""
    inner = columns["tp"] * columns["cp"]
    pipeline_outside = columns["rank_order"] == 0
    dp_stride = np.where(pipeline_outside, inner, inner * columns["pp"])
    pp_stride = np.where(pipeline_outside, inner * columns["dp"], inner)
    return {
        **columns,
        "dp_stride": dp_stride,
        "replicate_stride": dp_stride * columns["dp_shard"],
        "pp_stride": pp_stride,
        "tied_stride": np.maximum(pp_stride * (columns["pp"] - 1), 1),
        "world": inner * columns["pp"] * columns["dp"],
    }


def chunk_layers(layers: ArrayLike, vpp: ArrayLike, chunk: ArrayLike, ends_model: ArrayLike) -> NDArray[np.int64]:
    """Layers of chunk number `chunk` of stages that hold `layers` layers in `vpp` chunks; elementwise.

    As even as they go. The chunk that also holds the embedding (the first rank's first) or the head (the last rank's
    last) is among the smaller ones, as in Llama 3's balanced pipeline: where `ends_model`, on the last of several
    ranks, the wider chunks come first, elsewhere last.
    """
    base, extra = np.divmod(layers, vpp)
    wide = np.where(ends_model, np.less(chunk, extra), np.greater_equal(chunk, vpp - extra))
    return np.asarray(base + wide, dtype=np.int64)


_TENSOR_PARALLEL_RULES = ("tp-divides-heads", "tp-divides-ffn", "tp-splits-kv-heads", "tp-divides-sequence")


def _largest_tensor_parallel(cluster: ClusterSpec) -> int:
    domain = cluster.tiers[0].domain_gpus or cluster.gpus
    return min(domain, cluster.gpus)


def divisors(value: int, largest: int) -> NDArray[np.int64]:
    """The divisors of `value` up to `largest`, ascending."""
    candidates = np.arange(1, int(value**0.5) + 1)
    small = candidates[value % candidates == 0]
    both = np.unique(np.concatenate([small, value // small]))
    return np.asarray(both[both <= largest], dtype=np.int64)


def _shard_sizes(cluster: ClusterSpec, dp: int, stride: int) -> list[int]:
    """Sizes of the sharding group: the whole of dp, and the largest that stays inside each network tier (HSDP)."""
    sizes = {dp}
    for tier in cluster.tiers:
        reach = (tier.domain_gpus or cluster.gpus) // stride
        inside = [int(d) for d in divisors(dp, max(reach, 1)) if d > 1]
        sizes.update(inside[-1:])
    return sorted(sizes, reverse=True)


def _schedules(request: PlanRequest, pp: int, num_microbatches: int) -> list[tuple[int, int]]:
    """(vpp, schedule index) pairs that a pipeline of `pp` ranks can run, restricted to the request's schedule."""
    wanted = request.schedule
    if pp == 1:
        return [(1, SCHEDULES.index("1f1b"))] if wanted in (None, "1f1b") else []
    choices = [(1, SCHEDULES.index(name)) for name in ("1f1b", "gpipe") if wanted in (None, name)]
    if wanted in (None, "interleaved") and num_microbatches % pp == 0:
        most = (request.model.layers + 2) // pp
        choices += [(vpp, SCHEDULES.index("interleaved")) for vpp in range(2, most + 1)]
    return choices

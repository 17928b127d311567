"""What pinned buffers may take of the nodes' memory, which the stages with GPUs on a node share.

A dynamic program cannot carry such a limit: its stages are chosen one by one. It is a row of the mixed-integer program
for every mix of stages on a node; each stage by itself may have what the node has for its GPUs there. Where offload is
not searched for but the last way to fit, the GPUs of a node have equal shares instead.
"""

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner.request import PlanRequest

__all__ = [
    "even_share_bytes",
    "fit",
    "fullest_node_bytes",
    "gpus_by_node",
    "limit_bytes",
    "room_bytes",
    "stage_limits_bytes",
]

# What pinned buffers may take of a host's memory; the rest is the operating system's, the loaders', the page cache's.
HOST_FRACTION = 0.9
ROUNDING = 1e-9

Counts = NDArray[np.int64]


def room_bytes(request: PlanRequest) -> float:
    """Memory of one node that pinned buffers may take, bytes."""
    return HOST_FRACTION * request.cluster.host_memory_bytes


def gpus_by_node(request: PlanRequest, layout: Mapping[str, Any]) -> Counts:
    """GPUs of each stage on a node, int[mixes, pp]: one row for each mix of stages that there is on some node."""
    world, pp, stride = (int(layout[name]) for name in ("world", "pp", "pp_stride"))
    return _gpus_by_node(world, pp, stride, request.cluster.gpus_per_node)


@lru_cache(maxsize=65_536)
def _gpus_by_node(world: int, pp: int, pp_stride: int, gpus_per_node: int) -> Counts:
    if pp_stride % gpus_per_node == 0:  # whole nodes of one stage
        return gpus_per_node * np.eye(pp, dtype=np.int64)
    # Runs of `pp_stride` ranks are of one stage, in turns. What follows when nodes and turns begin together repeats,
    # and of a last node that is part-filled there is a full one that holds as much of every stage.
    rank = np.arange(min(world, math.lcm(pp_stride * pp, gpus_per_node)))
    node, stage = rank // gpus_per_node, rank // pp_stride % pp
    counts = np.bincount(node * pp + stage, minlength=(int(node[-1]) + 1) * pp).reshape(-1, pp)
    return np.asarray(np.unique(counts, axis=0))


def limit_bytes(request: PlanRequest, layouts: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
    """Most that one GPU of some stage may take of its node, bytes, float[layouts]."""
    return np.array([limits.max() for limits in _limits(request, layouts)])


def stage_limits_bytes(
    request: PlanRequest, layouts: Mapping[str, NDArray[Any]], rows: Mapping[str, NDArray[Any]]
) -> NDArray[np.float64]:
    """Most that one GPU of the stage of each row may take of its node if no other stage took any, bytes.

    An equal share where offload is not searched for.
    """
    limits = _limits(request, layouts)
    widest = max((len(each) for each in limits), default=0)
    table = np.zeros((len(limits), widest))
    for row, each in zip(table, limits, strict=True):
        row[: len(each)] = each
    return np.asarray(table[rows["layout"], rows["position"]])


def _limits(request: PlanRequest, layouts: Mapping[str, NDArray[Any]]) -> list[NDArray[np.float64]]:
    """The limit of each stage of each layout."""
    names = ("world", "pp", "pp_stride")
    room = room_bytes(request)
    if "offload" not in request.search:
        return [np.full(pp, room / request.cluster.gpus_per_node) for pp in layouts["pp"].tolist()]
    columns = zip(*(layouts[name].tolist() for name in names), strict=True)
    return [room / gpus_by_node(request, dict(zip(names, values, strict=True))).max(axis=0) for values in columns]


def even_share_bytes(request: PlanRequest, layout: Mapping[str, Any]) -> float:
    """What every GPU may take of its node, bytes, if all took as much."""
    return float(room_bytes(request) / gpus_by_node(request, layout).sum(axis=1).max())


def fullest_node_bytes(request: PlanRequest, layout: Mapping[str, Any], host_bytes: NDArray[Any]) -> float:
    """Memory that a plan takes on its fullest node, from what one GPU of each stage takes, float[pp]; bytes."""
    return float((gpus_by_node(request, layout) @ host_bytes).max())


def fit(request: PlanRequest, layout: Mapping[str, Any], host_bytes: NDArray[Any]) -> bool:
    """Whether no node has to hold more than it can, given what one GPU of each stage takes, float[pp]."""
    return fullest_node_bytes(request, layout, host_bytes) <= room_bytes(request) * (1.0 + ROUNDING)

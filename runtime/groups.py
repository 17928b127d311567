"""Which ranks work together: one device mesh of a plan's degrees, in the plan's order of ranks."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor

from planner.document import Parallelism
from runtime.context import ContextParallel

__all__ = ["Groups", "TensorParallel", "forget_groups", "groups_of"]

PIPELINE, REPLICATE, SHARD, CONTEXT, HEADS, COPIES = "pipeline", "replicate", "shard", "context", "heads", "copies"
# From the outermost to the innermost, which is the other way round in the name of the order.
ORDERS = {
    "tp-cp-ep-dp-pp": (PIPELINE, REPLICATE, SHARD, CONTEXT, HEADS, COPIES),
    "tp-cp-ep-pp-dp": (REPLICATE, SHARD, PIPELINE, CONTEXT, HEADS, COPIES),
}


@dataclass(frozen=True)
class TensorParallel:
    """The ranks that share every layer's matrices, as one of them sees it."""

    size: int = 1
    rank: int = 0
    group: dist.ProcessGroup | None = None
    copies: int = 1
    """Neighbours that hold the same key and value heads."""
    copies_group: dist.ProcessGroup | None = None
    sequence_parallel: bool = False


@dataclass(frozen=True)
class Groups:
    """A rank's place in the plan."""

    mesh: DeviceMesh
    states: DeviceMesh
    """The ranks that share one copy of sharded states: those of a context, too."""
    data: DeviceMesh
    """All ranks that hold the same layers' part, each with other tokens: shards and replicas."""
    tensor: TensorParallel
    context: ContextParallel
    pipeline_rank: int
    pipeline_group: dist.ProcessGroup
    data_rank: int
    """Which of the dp shares of a batch this rank works on."""

    def data_mesh(self, *, sharded: bool) -> DeviceMesh:
        """The data-parallel ranks: [shard] or [replicate, shard] of sharded states, else [all of them]."""
        if not sharded:
            return self.data
        replicas = self.mesh[REPLICATE]
        return self.states if replicas.size() == 1 else DeviceMesh._concatenate([replicas, self.states])

    def holders(self, parameter: nn.Parameter) -> int:
        """Data-parallel ranks that hold the same part of a parameter."""
        assert isinstance(parameter, DTensor)
        return self._replicas if parameter.placements[-1].is_shard() else self._data_ranks

    @cached_property  # a mesh is slow to cut, and each parameter asks in each step
    def _replicas(self) -> int:
        return int(self.mesh[REPLICATE].size())

    @cached_property
    def _data_ranks(self) -> int:
        return int(self.data.size())


def groups_of(layout: Parallelism, kv_heads: int, device_type: str) -> Groups:
    """This rank's groups; every rank of the job must call it, in the same order. Needs an initialised world."""
    mesh, tensor_mesh, states, data = _meshes(layout, max(1, layout.tp // kv_heads), device_type)
    copies = mesh[COPIES].size()
    tensor = TensorParallel(
        size=layout.tp,
        rank=tensor_mesh.get_local_rank(),
        group=tensor_mesh.get_group() if layout.tp > 1 else None,
        copies=copies,
        copies_group=mesh[COPIES].get_group() if copies > 1 else None,
        sequence_parallel=layout.sequence_parallel,
    )
    context = ContextParallel(
        size=layout.cp,
        rank=mesh[CONTEXT].get_local_rank(),
        group=mesh[CONTEXT].get_group() if layout.cp > 1 else None,
    )
    shard, replicate = mesh[SHARD].get_local_rank(), mesh[REPLICATE].get_local_rank()
    return Groups(
        mesh=mesh,
        states=states,
        data=data,
        tensor=tensor,
        context=context,
        pipeline_rank=mesh[PIPELINE].get_local_rank(),
        pipeline_group=mesh[PIPELINE].get_group(),
        data_rank=replicate * layout.dp_shard + shard,
    )


def forget_groups() -> None:
    """Lets a process that joins another world, or becomes another rank, make its groups anew."""
    _meshes.cache_clear()


@lru_cache(maxsize=64)
def _meshes(
    layout: Parallelism, copies: int, device_type: str
) -> tuple[DeviceMesh, DeviceMesh, DeviceMesh, DeviceMesh]:
    """The mesh of a layout, and those of its tensor-parallel ranks, of one copy of states and of all data-parallel
    ranks; communicators are dear.
    """
    sizes = {
        PIPELINE: layout.pp,
        REPLICATE: layout.dp_replicate,
        SHARD: layout.dp_shard,
        CONTEXT: layout.cp,
        HEADS: layout.tp // copies,
        COPIES: copies,
    }
    names = ORDERS[layout.rank_order]
    mesh = init_device_mesh(device_type, tuple(sizes[name] for name in names), mesh_dim_names=names)
    return (
        mesh,
        mesh[HEADS, COPIES]._flatten("tensor"),
        mesh[SHARD, CONTEXT]._flatten("states"),
        mesh[REPLICATE, SHARD, CONTEXT]._flatten("data"),
    )

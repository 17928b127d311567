"""How a chunk's states are kept over its data-parallel ranks: ZeRO levels and FSDP, all by FSDP2.

level 0      every rank keeps everything; gradients are summed once a step
level 1      optimizer states and master weights are sharded; gradients pile up whole and are reduced once a step
level 2      gradients are reduced and sharded after every micro-batch, also for recipes that reduce them later: memory
             is planned for sharded ones, which torch can only add to by reducing
level 3      as 2; with reshard_after_forward weights are gathered layer by layer for each forward and each backward

Below resharding the gathered weights stay for the step: gathered before the first forward, freed after the last
backward.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import nn
from torch.distributed._composable.replicate_with_fsdp import ReplicateModule, replicate
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_param import ShardedState
from torch.distributed.fsdp._fully_shard._fsdp_param_group import FSDPParamGroup

from planner.document.job import StageJob
from runtime.chunk import Chunk
from runtime.groups import Groups
from runtime.precision import Precision

__all__ = ["ShardedChunk", "param_groups", "shard"]


@dataclass(frozen=True)
class Policy:
    """When gradients are reduced and weights freed."""

    reduces_each_micro_batch: bool
    reshards: bool


class ShardedChunk(nn.Module):
    """A chunk, or some of its layers, whose states FSDP2 keeps. It hides FSDP2 from the pipeline's runtime, which has
    its own idea of when to reduce and to free; the actions of our schedule say it instead.
    """

    def __init__(self, chunk: nn.Module, policy: Policy) -> None:
        super().__init__()
        self.chunk = chunk
        self.policy = policy
        self._set_gradient_sync(policy.reduces_each_micro_batch)
        self._root.set_reshard_after_backward(policy.reshards)

    def forward(self, inputs: torch.Tensor, **_: Any) -> torch.Tensor:
        """What the chunk returns."""
        output: torch.Tensor = self.chunk(inputs)
        return output

    @property
    def _root(self) -> FSDPModule:
        assert isinstance(self.chunk, FSDPModule)
        return self.chunk

    def unshard(self) -> None:
        """Gathers the weights of all layers, those that are not gathered yet."""
        for module in self._units():
            module.unshard()

    def collect_gradients(self, *, last: bool) -> None:
        """Moves the gradients of a weight-gradient pass to where they pile up, reduced where the level says so."""
        self._set_gradient_sync(self.policy.reduces_each_micro_batch or last)
        self._root.set_reshard_after_backward(self.policy.reshards or last)
        for group in self._groups():
            group.post_backward()
        self._state._root_post_backward_final_callback()
        self._set_gradient_sync(self.policy.reduces_each_micro_batch)
        self._root.set_reshard_after_backward(self.policy.reshards)

    def held_bytes(self) -> tuple[int, int]:
        """Bytes of the weights that are gathered now, and of the whole gradients that pile up."""
        weights = gradients = 0
        for parameter in (one for group in self._groups() for one in group.fsdp_params):
            if parameter.sharded_state is ShardedState.UNSHARDED:
                weights += parameter.unsharded_param.nbytes
            piled_up = parameter.unsharded_accumulated_grad
            gradients += 0 if piled_up is None else piled_up.nbytes
        return weights, gradients

    @property
    def _state(self) -> Any:
        return _state_of(self.chunk)

    def _groups(self) -> Iterator[FSDPParamGroup]:
        yield from param_groups(self.chunk)

    def _set_gradient_sync(self, sync: bool) -> None:
        self._root.set_requires_gradient_sync(sync)

    def _units(self) -> list[FSDPModule]:
        return [module for module in self.chunk.modules() if isinstance(module, FSDPModule)]


def shard(chunk: Chunk, stage: StageJob, groups: Groups, precision: Precision) -> ShardedChunk:
    """The chunk with its states sharded as the stage says; embedding, head and each layer are gathered on their own."""
    policy = Policy(
        reduces_each_micro_batch=stage.zero_stage >= 2,
        reshards=stage.zero_stage == 3 and stage.reshard_after_forward,
    )
    mixed = MixedPrecisionPolicy(
        param_dtype=precision.compute, reduce_dtype=precision.reduce, cast_forward_inputs=False
    )
    mesh = groups.data_mesh(sharded=stage.zero_stage > 0)
    for unit in _units_of(chunk):
        if stage.zero_stage:
            fully_shard(unit, mesh=mesh, reshard_after_forward=policy.reshards, mp_policy=mixed)
        else:
            replicate(unit, mesh=mesh, mp_policy=mixed)
    _prefetch_backwards(chunk)
    return ShardedChunk(chunk, policy)


def param_groups(root: nn.Module) -> list[FSDPParamGroup]:
    """FSDP2's groups of parameters of all units below a root; private to torch."""
    return [group for one in _state_of(root)._state_ctx.all_states for group in one._fsdp_param_groups]


def _state_of(root: nn.Module) -> Any:
    contract = replicate if isinstance(root, ReplicateModule) else fully_shard
    return contract.state(root)


def _prefetch_backwards(chunk: Chunk) -> None:
    """Has each unit gathered while the one behind it runs its backward.

    Left to itself FSDP2 goes back through all forwards since the last backward: with several micro-batches on their way
    the first unit of a chunk would have the last one gathered, for nothing.
    """
    ends = chunk.embedding, *chunk.layers.values(), chunk.head
    units = [unit for unit in ends if isinstance(unit, FSDPModule)]
    if units and isinstance(chunk, FSDPModule):
        for before, unit in pairwise([units[0], *units, chunk]):
            unit.set_modules_to_backward_prefetch([before])


def _units_of(chunk: Chunk) -> list[nn.Module]:
    """What is gathered in one go, from the inside out: layers, the ends unless they share their matrix, the rest."""
    ends = [end for end in (chunk.embedding, chunk.head) if end is not None]
    if chunk.embedding is not None and chunk.head is not None and chunk.embedding.weight is chunk.head.weight:
        ends = []
    return [*chunk.layers.values(), *ends, chunk]

"""Tied embeddings of a pipeline: embedding and head are one matrix that two chunks hold, each with its gradient."""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runtime.parameters import Held, local_part
from runtime.rank import Rank

__all__ = ["Tied"]


class Tied:
    """The two copies, as one rank sees them. A model without tied embeddings, or of one chunk, has none."""

    def __init__(self, rank: Rank) -> None:
        self._group = rank.groups.pipeline_group
        first, last = rank.chunks[0].chunk.embedding, rank.chunks[-1].chunk.head
        apart = rank.job.model.tie_embeddings and rank.job.layout.pp * rank.job.layout.vpp > 1
        self._first: nn.Parameter | None = first.weight if apart and first is not None else None
        self._second: nn.Parameter | None = last.weight if apart and last is not None else None
        self._last_rank = rank.job.layout.pp - 1

    def is_second(self, one: Held) -> bool:
        """Whether a parameter is the copy at the head, which nothing counts."""
        return one.parameter is self._second

    def sum_gradients(self) -> None:
        """Gives both copies the sum of their gradients; each rank that holds one must call it."""
        if self._first is not None and self._second is not None:
            total = _gradient(self._first) + _gradient(self._second)
            _gradient(self._first).copy_(total)
            _gradient(self._second).copy_(total)
        elif self._first is not None:
            self._exchange(_gradient(self._first), self._last_rank)
        elif self._second is not None:
            self._exchange(_gradient(self._second), 0)

    def _exchange(self, own: Tensor, peer: int) -> None:
        sent, other = own.contiguous(), torch.empty_like(own)
        operations = [
            dist.P2POp(dist.isend, sent, group=self._group, group_peer=peer),
            dist.P2POp(dist.irecv, other, group=self._group, group_peer=peer),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
        own += other


def _gradient(parameter: nn.Parameter) -> Tensor:
    assert parameter.grad is not None
    return local_part(parameter.grad)

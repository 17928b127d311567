"""Context parallelism: a sequence cut into 2n chunks, of which each of n ranks has the one from either end.

Keys and values are gathered before the attention (Llama 3, section 3.3.2): rank r holds the chunks r and 2n - 1 - r, so
that under a causal mask all ranks have as much to do.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from planner.document.job import CHUNKS_PER_RANK

__all__ = ["ContextParallel"]

TOKENS = 1


@dataclass(frozen=True)
class ContextParallel:
    """The ranks that share every sequence, as one of them sees it."""

    size: int = 1
    rank: int = 0
    group: dist.ProcessGroup | None = None

    def own(self, whole: Tensor) -> Tensor:
        """[b, s / ranks] this rank's chunks of [b, s] tokens."""
        return whole if self.size == 1 else whole[:, self.positions(whole.shape[TOKENS] // self.size, whole.device)]

    def positions(self, length: int, device: torch.device) -> Tensor:
        """[length] where in the sequence this rank's tokens stand, `length` of them."""
        return self._positions_of(self.rank, length, device)

    def all_positions(self, length: int, device: torch.device) -> Tensor:
        """[ranks * length] where the tokens of all ranks stand, rank after rank, as gathered ones come."""
        return torch.cat([self._positions_of(rank, length, device) for rank in range(self.size)])

    def _positions_of(self, rank: int, length: int, device: torch.device) -> Tensor:
        if self.size == 1:
            return torch.arange(length, device=device)
        each = length // CHUNKS_PER_RANK
        chunks = rank, CHUNKS_PER_RANK * self.size - 1 - rank
        return torch.cat([torch.arange(one * each, (one + 1) * each, device=device) for one in chunks])

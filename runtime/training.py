"""A training step of one rank, and the step's loss."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.errors import TrainingError
from runtime.optimizer import Optimizer
from runtime.rank import Rank

__all__ = ["Batch", "Result", "backward", "train_step"]


@dataclass(frozen=True)
class Batch:
    """What one data-parallel rank sees in a step."""

    tokens: Tensor
    """[num_microbatches * micro_batch_size, seq_len]"""
    targets: Tensor
    """The tokens that follow, likewise."""

    def to(self, device: torch.device) -> "Batch":
        """The batch on a device."""
        return Batch(self.tokens.to(device), self.targets.to(device))


@dataclass(frozen=True)
class Result:
    """What a step came to."""

    loss: float
    """Mean over the tokens of the step."""
    gradient_norm: float


def train_step(rank: Rank, optimizer: Optimizer, batch: Batch, step: int) -> Result:
    """One step of the job; every rank must call it. Raises TrainingError, on all ranks, when the loss is not finite."""
    loss = backward(rank, batch)
    if not torch.isfinite(torch.tensor(loss)):
        message = f"the loss of step {step} must be finite, got {loss}: the weights are those before it"
        raise TrainingError(message)
    optimizer.complete_gradients()
    return Result(loss, optimizer.step())


def backward(rank: Rank, batch: Batch) -> float:
    """The loss of a batch, mean over the tokens of all ranks; gradients are in the parameters."""
    losses: list[Tensor] = []
    context = rank.groups.context
    inputs: Iterable[Tensor] = (context.own(batch.tokens),) if rank.has_embedding else ()
    target = context.own(batch.targets) if rank.has_head else None
    rank.schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
    own = sum(loss.item() for loss in losses)
    total = torch.tensor(own, dtype=torch.float64, device=rank.device)
    dist.all_reduce(total)
    # Every rank of a tensor-parallel group has the loss of its data-parallel rank, and of its part of the context.
    return float(total) / (rank.job.layout.tp * rank.job.layout.cp * rank.job.layout.dp)

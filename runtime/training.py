"""A training step of one rank, and the step's loss."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.errors import TrainingError
from runtime.finite import in_words, ranks_without
from runtime.optimizer import UNTOUCHED, Optimizer
from runtime.rank import Rank

__all__ = ["Batch", "Loss", "Result", "backward", "train_step"]


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
class Loss:
    """Of one step."""

    mean: float
    """Over the tokens of all ranks."""
    own: float
    """Over those of this rank; 0 where the head is not."""


@dataclass(frozen=True)
class Result:
    """What a step came to."""

    loss: float
    """Mean over the tokens of the step."""
    gradient_norm: float


def train_step(rank: Rank, optimizer: Optimizer, batch: Batch, step: int) -> Result:
    """One step of the job; every rank must call it.

    Raises TrainingError, on all ranks and before a weight is touched, when loss or gradient norm is not finite.
    """
    loss = backward(rank, batch)
    if not math.isfinite(loss.mean):
        where = in_words(ranks_without(math.isfinite(loss.own), rank.device))
        message = f"the loss of step {step} must be finite, got {loss.mean}: that on {where} is not; {UNTOUCHED}"
        raise TrainingError(message)
    optimizer.complete_gradients()
    return Result(loss.mean, optimizer.step(step))


def backward(rank: Rank, batch: Batch) -> Loss:
    """The loss of a batch; gradients are in the parameters."""
    losses: list[Tensor] = []
    context = rank.groups.context
    inputs: Iterable[Tensor] = (context.own(batch.tokens),) if rank.has_embedding else ()
    target = context.own(batch.targets) if rank.has_head else None
    rank.schedule.step(*inputs, target=target, losses=losses, return_outputs=False)
    own = sum(loss.item() for loss in losses)
    total = torch.tensor(own, dtype=torch.float64, device=rank.device)
    dist.all_reduce(total)
    # Every rank of a tensor-parallel group has the loss of its data-parallel rank, and of its part of the context.
    return Loss(float(total) / (rank.job.layout.tp * rank.job.layout.cp * rank.job.layout.dp), own)

"""Cross-entropy of logits whose vocabulary is dealt out over the tensor-parallel group (Shoeybi et al. 2019)."""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.groups import TensorParallel

__all__ = ["loss_function", "vocabulary_cross_entropy"]


def loss_function(vocab: int, tensor: TensorParallel, micro_batches: int) -> Callable[[Tensor, Tensor], Tensor]:
    """What a micro-batch adds to the step's loss: its mean over tokens, over the number of micro-batches."""

    def loss(logits: Tensor, targets: Tensor) -> Tensor:
        return vocabulary_cross_entropy(logits, targets, vocab, tensor).mean() / micro_batches

    return loss


def vocabulary_cross_entropy(logits: Tensor, targets: Tensor, vocab: int, tensor: TensorParallel) -> Tensor:
    """[b, s] the loss of each token, the same on every rank, in at least fp32.

    `logits` [b, s, rows] are this rank's rows; rows from `vocab` on are padding and have no probability.
    """
    result: Tensor = _CrossEntropy.apply(logits, targets, vocab, tensor)
    return result


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, logits: Tensor, targets: Tensor, vocab: int, tensor: TensorParallel) -> Tensor:
        rows = logits.shape[-1]
        first = rows * tensor.rank
        precise = logits.to(torch.promote_types(logits.dtype, torch.float32), copy=True)
        precise[..., max(vocab - first, 0) :] = -torch.inf
        largest = _reduced(precise.amax(dim=-1), dist.ReduceOp.MAX, tensor)
        precise -= largest.unsqueeze(-1)
        local = targets - first
        is_here = (local >= 0) & (local < rows)
        local = local.where(is_here, 0)
        chosen = precise.gather(-1, local.unsqueeze(-1)).squeeze(-1).where(is_here, 0.0)
        softmax = precise.exp_()
        total = _reduced(torch.stack([softmax.sum(dim=-1), chosen]), dist.ReduceOp.SUM, tensor)
        softmax /= total[0].unsqueeze(-1)
        context.save_for_backward(softmax, local, is_here)
        context.dtype = logits.dtype
        return total[0].log() - total[1]

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        softmax, local, is_here = context.saved_tensors
        gradient = softmax * gradients[0].unsqueeze(-1)
        chosen = (-gradients[0]).where(is_here, 0.0).unsqueeze(-1)
        gradient.scatter_add_(-1, local.unsqueeze(-1), chosen)
        return gradient.to(context.dtype), None, None, None


def _reduced(values: Tensor, operation: Any, tensor: TensorParallel) -> Tensor:
    if tensor.group is not None:
        dist.all_reduce(values, op=operation, group=tensor.group)
    return values

"""Collectives of tensor and context parallelism that autograd can walk through.

Residuals are [sequences, tokens, hidden]. With sequence parallelism each rank holds its part of the tokens outside
attention and MLP (Korthikanti et al. 2022, section 4.2.2): entering gathers them, leaving reduces and scatters. Without
it entering only reduces gradients, leaving only reduces sums (Shoeybi et al. 2019, section 3).
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.context import ContextParallel
from runtime.groups import TensorParallel
from runtime.recomputation import Forgetting

__all__ = [
    "enter",
    "enter_briefly",
    "gather_sequence",
    "gather_tokens",
    "leave",
    "own_tokens",
    "reduce_sum",
    "scatter_tokens",
]

TOKENS = 1


def enter(hidden: Tensor, tensor: TensorParallel) -> Tensor:
    """[b, s, h] every token, on its way into a column-parallel product; its gradient is summed over the group."""
    if tensor.group is None:
        return hidden
    operation = _Gather if tensor.sequence_parallel else _ReduceGradient
    return _applied(operation, hidden, tensor.group)


def enter_briefly(hidden: Tensor, tensor: TensorParallel, forgetting: Forgetting) -> Tensor:
    """As `enter`; where tokens are gathered only this rank's part of them is kept for the backward."""
    if not tensor.sequence_parallel:
        return enter(hidden, tensor)
    return forgetting.forget(lambda part: enter(part, tensor), hidden)


def leave(partial: Tensor, tensor: TensorParallel) -> Tensor:
    """[b, s or s / tp, h] the sum over the group of what a row-parallel product leaves on each rank."""
    if tensor.group is None:
        return partial
    operation = _Scatter if tensor.sequence_parallel else _Reduce
    return _applied(operation, partial, tensor.group)


def gather_sequence(part: Tensor, context: ContextParallel) -> Tensor:
    """[b, s, ...] the tokens of all context-parallel ranks, rank after rank; their gradients go back to their ranks."""
    return part if context.group is None else _applied(_Gather, part, context.group)


def own_tokens(whole: Tensor, tensor: TensorParallel) -> Tensor:
    """This rank's part of the tokens of [s, ...], all of them without sequence parallelism."""
    if not tensor.sequence_parallel:
        return whole
    return whole.tensor_split(tensor.size)[tensor.rank]


def gather_tokens(part: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[b, s, h] the parts of the tokens of all ranks, one after the other."""
    size = dist.get_world_size(group)
    parts = part.new_empty((size, *part.shape))
    dist.all_gather_single(parts.flatten(0, 1), part.contiguous(), group=group)
    return parts.transpose(0, 1).flatten(TOKENS, TOKENS + 1)


def scatter_tokens(partial: Tensor, group: dist.ProcessGroup) -> Tensor:
    """[b, s / ranks, h] this rank's part of the tokens of the sum over the group."""
    size = dist.get_world_size(group)
    parts = partial.unflatten(TOKENS, (size, -1)).transpose(0, 1).contiguous()
    part = torch.empty_like(parts[0])
    dist.reduce_scatter_single(part, parts.flatten(0, 1), group=group)
    return part


def reduce_sum(partial: Tensor, group: dist.ProcessGroup) -> Tensor:
    """The sum over the group, a tensor of its own."""
    total = partial.clone(memory_format=torch.contiguous_format)
    dist.all_reduce(total, group=group)
    return total


def _applied(operation: type[torch.autograd.Function], tensor: Tensor, group: dist.ProcessGroup) -> Tensor:
    result: Tensor = operation.apply(tensor, group)
    return result


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, part: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        return gather_tokens(part, group)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return scatter_tokens(gradients[0], context.group), None


class _Scatter(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, partial: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        return scatter_tokens(partial, group)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gather_tokens(gradients[0], context.group), None


class _ReduceGradient(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, hidden: Tensor, group: dist.ProcessGroup) -> Tensor:
        context.group = group
        return hidden.view_as(hidden)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return reduce_sum(gradients[0], context.group), None


class _Reduce(torch.autograd.Function):
    @staticmethod
    def forward(context: Any, partial: Tensor, group: dist.ProcessGroup) -> Tensor:
        return reduce_sum(partial, group)

    @staticmethod
    def backward(context: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0], None

"""Every collective that autograd walks through, against the same computed on one rank."""

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from runtime.collectives import enter, leave, own_tokens
from runtime.groups import TensorParallel
from runtime.loss import vocabulary_cross_entropy
from tests.runtime.conftest import Ranks

B, S, H, VOCAB = 2, 8, 5, 11


def tensor_group(sequence_parallel: bool) -> TensorParallel:
    """All ranks of the world as one tensor-parallel group."""
    size, rank = dist.get_world_size(), dist.get_rank()
    return TensorParallel(size, rank, dist.group.WORLD, sequence_parallel=sequence_parallel)


def drawn(seed: int, *shape: int) -> Tensor:
    """Normal numbers in float64, laid out so that none of them is contiguous."""
    numbers = torch.randn(*reversed(shape), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.permute(*reversed(range(len(shape))))


def entered(sequence_parallel: bool) -> float:
    """How far `enter` and its gradient are from what they should be: each rank multiplies by its own number."""
    tensor = tensor_group(sequence_parallel)
    whole, weight = drawn(1, B, S, H), drawn(2, B, S, H)
    part = (own_tokens(whole.transpose(0, 1), tensor).transpose(0, 1)).detach().requires_grad_()
    (enter(part, tensor) * weight * (tensor.rank + 1)).transpose(0, 2).sum().backward()
    total = weight * sum(range(1, tensor.size + 1))
    expected = own_tokens(total.transpose(0, 1), tensor).transpose(0, 1)
    assert part.grad is not None
    forward = (enter(part, tensor) - whole).abs().max()
    return torch.maximum(forward, (part.grad - expected).abs().max()).item()


def left(sequence_parallel: bool) -> float:
    """How far `leave` and its gradient are from what they should be: rank r brings its number times a tensor."""
    tensor = tensor_group(sequence_parallel)
    whole, weight = drawn(1, B, S, H), drawn(2, B, S, H)
    partial = (whole * (tensor.rank + 1)).detach().requires_grad_()
    total = leave(partial, tensor)
    own_weight = own_tokens(weight.transpose(0, 1), tensor).transpose(0, 1)
    (total * own_weight).transpose(0, 2).sum().backward()
    expected = own_tokens((whole * sum(range(1, tensor.size + 1))).transpose(0, 1), tensor).transpose(0, 1)
    assert partial.grad is not None
    return torch.maximum((total - expected).abs().max(), (partial.grad - weight).abs().max()).item()


def cross_entropy() -> float:
    """How far the loss over a shared, padded vocabulary and its gradient are from torch's own."""
    tensor = tensor_group(False)
    rows = -(-VOCAB // tensor.size) + 1
    logits = drawn(3, B, S, rows * tensor.size)
    targets = torch.randint(VOCAB, (B, S), generator=torch.Generator().manual_seed(4))
    weight = drawn(5, B, S)
    alone = logits.detach().requires_grad_()
    loss = torch.nn.functional.cross_entropy(alone[..., :VOCAB].flatten(0, 1), targets.flatten(), reduction="none")
    (loss.view(B, S) * weight).sum().backward()
    own = slice(rows * tensor.rank, rows * (tensor.rank + 1))
    part = logits[..., own].detach().requires_grad_()
    shared = vocabulary_cross_entropy(part, targets, VOCAB, tensor)
    (shared * weight).sum().backward()
    assert part.grad is not None
    assert alone.grad is not None
    difference = (part.grad - alone.grad[..., own]).abs().max()
    return torch.maximum((shared - loss.view(B, S)).abs().max(), difference).item()


@pytest.mark.parametrize("size", [2, 4])
@pytest.mark.parametrize("sequence_parallel", [True, False])
def test_entering_and_leaving_are_each_others_adjoint(sequence_parallel: bool, size: int, ranks: Ranks) -> None:
    """Values and gradients, of tensors and incoming gradients that are not contiguous, are those of one rank."""
    assert max(ranks(size).run(entered, sequence_parallel)) < 1e-12
    assert max(ranks(size).run(left, sequence_parallel)) < 1e-12


@pytest.mark.parametrize("size", [2, 4])
def test_the_loss_of_a_shared_vocabulary_is_that_of_a_whole_one(size: int, ranks: Ranks) -> None:
    """Padding has no probability; a rank may hold nothing but padding."""
    assert max(ranks(size).run(cross_entropy)) < 1e-12

"""What ranks of a run say to each other, alone: collectives as tensor and data parallelism call them, pipeline hops.

Sizes are (bytes of the whole tensor, ranks); of an all-to-all the bytes that a rank holds, of a hop those sent. Groups
are neighbours; where a world has several, all are at work.
"""

from collections.abc import Mapping
from functools import cache

import torch
import torch.distributed as dist
from torch import Tensor

from runtime.alone import Alone, Maker, Sizes
from runtime.collectives import gather_tokens, reduce_sum, scatter_tokens

__all__ = ["MAKERS", "group_of"]

COMPUTE = torch.bfloat16
# Residuals are [sequences, tokens, hidden]; collectives cut the tokens.
HIDDEN = 64


@cache
def group_of(ranks: int) -> dist.ProcessGroup:
    """This rank's group of so many neighbours; every rank of the world must ask for it."""
    size, found = dist.get_world_size(), None
    for first in range(0, size, ranks):
        members = list(range(first, min(first + ranks, size)))
        group = dist.new_group(members)
        if dist.get_rank() in members:
            found = group
    assert found is not None
    return found


def _whole(size: int, ranks: int, device: torch.device) -> Tensor:
    tokens = max(1, size // (ranks * HIDDEN * COMPUTE.itemsize)) * ranks
    return torch.randn(1, tokens, HIDDEN, device=device).to(COMPUTE)


def _all_gather(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    size, ranks = sizes
    part, group = _whole(size, ranks, device)[:, ::ranks].contiguous(), group_of(ranks)
    return Alone(lambda: gather_tokens(part, group), size)


def _reduce_scatter(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    size, ranks = sizes
    whole, group = _whole(size, ranks, device), group_of(ranks)
    return Alone(lambda: scatter_tokens(whole, group), size)


def _all_reduce(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    size, ranks = sizes
    whole, group = _whole(size, ranks, device), group_of(ranks)
    return Alone(lambda: reduce_sum(whole, group), size)


def _all_to_all(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    size, ranks = sizes
    held, group = _whole(size, ranks, device).flatten(), group_of(ranks)

    def run() -> None:
        dist.all_to_all_single(torch.empty_like(held), held, group=group)

    return Alone(run, size)


def _send(sizes: Sizes, _: Sizes, device: torch.device) -> Alone:
    """From each even rank to the next one."""
    size, _ranks = sizes
    held, rank = _whole(size, 1, device), dist.get_rank()
    peer = rank ^ 1
    if peer >= dist.get_world_size():
        return Alone(lambda: None, size)
    operation = dist.isend if rank % 2 == 0 else dist.irecv

    def run() -> None:
        for work in dist.batch_isend_irecv([dist.P2POp(operation, held, peer)]):
            work.wait()

    return Alone(run, size)


MAKERS: Mapping[str, Maker] = {
    "all_gather": _all_gather,
    "reduce_scatter": _reduce_scatter,
    "all_reduce": _all_reduce,
    "all_to_all": _all_to_all,
    "send": _send,
}

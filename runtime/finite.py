"""Which ranks hold a value that is not finite."""

from collections.abc import Iterable

import torch
import torch.distributed as dist

from planner.document.runs import in_runs

__all__ = ["in_words", "ranks_without"]


def ranks_without(holds: bool, device: torch.device) -> list[int]:
    """The ranks of the world on which something does not hold; every rank must call it, and all get the same."""
    flags = torch.zeros(dist.get_world_size(), dtype=torch.int32, device=device)
    flags[dist.get_rank()] = not holds
    dist.all_reduce(flags)
    return [int(rank) for rank in flags.nonzero().flatten()]


def in_words(ranks: Iterable[int]) -> str:
    """Ranks for a message: `rank 3`, `ranks 0-3, 8`, `no rank`."""
    listed = list(ranks)
    return f"rank{'s' if len(listed) > 1 else ''} {in_runs(listed)}" if listed else "no rank"

"""Which ranks hold a value that is not finite."""

from collections.abc import Iterable

import torch
import torch.distributed as dist

__all__ = ["in_words", "ranks_without"]


def ranks_without(holds: bool, device: torch.device) -> list[int]:
    """The ranks of the world on which something does not hold; every rank must call it, and all get the same."""
    flags = torch.zeros(dist.get_world_size(), dtype=torch.int32, device=device)
    flags[dist.get_rank()] = not holds
    dist.all_reduce(flags)
    return [int(rank) for rank in flags.nonzero().flatten()]


def in_words(ranks: Iterable[int]) -> str:
    """Ranks for a message: `rank 3`, `ranks 0-3, 8`, `no rank`."""
    runs: list[list[int]] = []
    for rank in sorted(ranks):
        if runs and rank == runs[-1][-1] + 1:
            runs[-1][1:] = [rank]
        else:
            runs.append([rank])
    if not runs:
        return "no rank"
    names = ["-".join(map(str, run)) for run in runs]
    return f"rank{'s' if len(runs) > 1 or len(runs[0]) > 1 else ''} {', '.join(names)}"

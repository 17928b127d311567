"""Random numbers that depend on what they are for, and on nothing else."""

import hashlib

import torch

__all__ = ["generator_of"]


def generator_of(seed: int, *purpose: object) -> torch.Generator:
    """A generator on the CPU, by a digest: torch's own seeds lose all but their last 32 bits."""
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:4], "big"))

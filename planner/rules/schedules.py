"""Names of the pipeline schedules that layouts can have."""

__all__ = ["FLEXIBLE", "SCHEDULES", "TORCH"]

SCHEDULES = (
    "1f1b",
    "interleaved",
    "gpipe",
    "breadth-first",
    "zb-h1",
    "zb-h2",
    "zb-v",
    "v-half",
    "v-min",
    "dualpipe-v",
    "terapipe",
    "seq1f1b",
    "slimpipe",
)
"""Pipeline schedules that layouts can have."""
FLEXIBLE = "flexible"
"""Interleaving with groups of any size, and with fewer micro-batches than ranks, where it is asked for by this name."""
TORCH = ("1f1b", "interleaved", "gpipe", "breadth-first", "zb-h1", "zb-v", "dualpipe-v")
"""What torch.distributed.pipelining has."""

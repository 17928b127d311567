"""A plan's shape on a few ranks of this machine, checked against one process."""

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch.distributed as dist

from planner.document.job import Job
from runtime.agreement import Agreement, agreement, alone
from runtime.precision import DOUBLE
from runtime.reference import worse
from runtime.shrink import shrunk
from runtime.world import World, fork

__all__ = ["TOLERANCE", "Verification", "verify"]

# Both sides compute in float64; they differ by the order of sums.
TOLERANCE = 1e-10


@dataclass(frozen=True)
class Verification:
    """What a small job came to."""

    job: Job
    agreement: Agreement

    @property
    def holds(self) -> bool:
        """Whether losses and gradients are those of one process."""
        return self.agreement.loss <= TOLERANCE and self.agreement.gradient <= TOLERANCE


def verify(job: Job, timeout_s: float) -> tuple[Verification, ...]:
    """The small jobs of a plan, each run and compared. Raises a RuntimeFault."""
    found: list[Verification] = []
    for small in shrunk(job):
        told: list[dict[str, Any]] = []
        fork(small.layout.gpus_used, partial(_compare, small), told.append, timeout_s, on_gpus=False)
        worst = max(
            (Agreement(**one) for one in told),
            key=lambda one: (math.isnan(worse(one.loss, one.gradient)), worse(one.loss, one.gradient)),
        )
        found.append(Verification(small, worst))
    return tuple(found)


def _compare(job: Job, world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """What this rank finds; the first computes for all of them what one process finds."""
    known = [alone(job) if world.rank == 0 else None]
    dist.broadcast_object_list(known)
    (reference,) = known
    assert reference is not None
    emit(asdict(agreement(job, reference, DOUBLE)))

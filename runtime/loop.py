"""Many small jobs run in turns, so that what disturbs a machine for a while disturbs all alike."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from planner.document.job import Job
from runtime.constants import Constants
from runtime.data import Drawn, batch_of
from runtime.live_bytes import peak_of
from runtime.measure import Meter
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import Part, fill
from runtime.precision import precision_of
from runtime.rank import Rank, build, materialize
from runtime.training import train_step
from runtime.world import World, fork

__all__ = ["Rounds", "run"]

WARM_UP_STEPS = 2
BLOCK, SCALE = 2**16, 0.02


@dataclass(frozen=True)
class Rounds:
    """How often each job has its turn, and how many steps it takes then beside one to warm up."""

    rounds: int = 3
    steps: int = 3


class Quick:
    """Small normal numbers, the same block again and again: values do not matter where only time and bytes do."""

    def __init__(self) -> None:
        self._block = SCALE * torch.randn(BLOCK, generator=torch.Generator().manual_seed(0))

    def values(self, name: str, rows: Part, columns: Part | None) -> Tensor:
        """[rows, columns], [rows] of a vector."""
        shape = (rows.size,) if columns is None else (rows.size, columns.size)
        count = rows.size * (1 if columns is None else columns.size)
        return self._block.repeat(-(-count // BLOCK))[:count].view(shape)


def run(
    jobs: Sequence[Job],
    ranks: int,
    rounds: Rounds,
    waited_s: Callable[[], float],
    emit: Callable[[dict[str, Any]], None],
    timeout_s: float,
) -> None:
    """Runs every job in every round; emits a record for each turn, and one with each job's peak.

    `waited_s` tells how long a rank was kept from a processor that others had. Each turn has ranks of its own, as a
    training run has: what groups leave behind (Gloo's threads stay, and wake a hundred times a second) would slow down
    the next job's steps. Raises RuntimeFault.
    """
    for number in range(rounds.rounds):
        for index, job in enumerate(jobs):
            tell = partial(_tell, emit, {"job": index, "round": number})
            fork(ranks, partial(_turn, job, rounds.steps, waited_s), tell, timeout_s)
    for index, job in enumerate(jobs):
        fork(ranks, partial(_peak_bytes, job), partial(_tell, emit, {"job": index}), timeout_s)


def _tell(emit: Callable[[dict[str, Any]], None], whose: dict[str, Any], record: dict[str, Any]) -> None:
    emit(whose | record)


def _turn(
    job: Job, steps: int, waited_s: Callable[[], float], world: World, emit: Callable[[dict[str, Any]], None]
) -> None:
    """Seconds of each step, of the slowest rank, and the most that any rank waited for a processor in it."""
    step = _prepared(job, world)
    for number in range(WARM_UP_STEPS):
        step(number)
    times, waits = [], []
    for number in range(WARM_UP_STEPS, WARM_UP_STEPS + steps):
        dist.barrier()
        before = waited_s()
        times.append(step(number))
        waited = torch.tensor(waited_s() - before, dtype=torch.float64, device=world.device)
        dist.all_reduce(waited, op=dist.ReduceOp.MAX)
        waits.append(float(waited))
    if world.rank == 0:
        emit({"step_time_s": times, "waited_s": waits})


def _prepared(job: Job, world: World) -> Callable[[int], float]:
    """A function that runs the step of a number and tells its seconds."""
    rank = _built(job, world)
    optimizer, meter = Optimizer(rank, Settings()), Meter(rank)
    data = Drawn(job.model.vocab, job.workload.seq_len, seed=0)

    def step(number: int) -> float:
        batch = batch_of(data, job, rank.groups.data_rank, number).to(world.device)
        meter.start()
        train_step(rank, optimizer, batch, number)
        return max(meter.stop().step_time_s)

    return step


def _built(job: Job, world: World) -> Rank:
    rank = build(job, precision_of(job.recipe), world.device, Constants())
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, Quick())
    return rank


def _peak_bytes(job: Job, world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """The most bytes of tensors that the fullest rank holds in its second step: the first makes the moments."""
    if world.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(world.device)
        _steps(job, world)
        own = torch.cuda.max_memory_allocated(world.device)
    else:
        with peak_of() as peak:
            _steps(job, world)
        own = peak()
    most = torch.tensor(own, dtype=torch.int64, device=world.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    if world.rank == 0:
        emit({"peak_bytes": int(most)})


def _steps(job: Job, world: World) -> None:
    step = _prepared(job, world)
    for number in range(2):
        step(number)

"""A plan trained for some steps: what every rank does, and the records that the first one tells."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from planner.document.job import Job
from runtime.constants import Constants, constants_in
from runtime.data import SYNTHETIC, batch_of, open_data
from runtime.errors import LaunchError
from runtime.initial import Drawn
from runtime.measure import Meter
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import Source, fill
from runtime.precision import precision_of
from runtime.rank import build, materialize
from runtime.training import train_step
from runtime.world import World

__all__ = ["Options", "check_ranks", "train"]


@dataclass(frozen=True)
class Options:
    """What a run is told besides its plan."""

    steps: int
    data: str = SYNTHETIC
    seed: int = 0
    weights: Path | None = None
    """A Hugging Face folder; drawn weights without one."""
    settings: Settings = Settings()


def check_ranks(job: Job, ranks: int) -> None:
    """Nothing when a job has so many ranks. Raises LaunchError otherwise."""
    if ranks != job.layout.gpus_used:
        message = f"the plan runs on {job.layout.gpus_used} ranks (parallelism.gpus_used), got {ranks}"
        raise LaunchError(message)


def train(job: Job, options: Options, world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """Trains on this rank; the first rank emits a record a step.

    Raises a RuntimeFault. Every rank of the world must call it.
    """
    check_ranks(job, world.size)
    data = open_data(options.data, job, options.seed)
    constants, source = _start(job, options)
    rank = build(job, precision_of(job.recipe), world.device, constants)
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, source)
    optimizer, meter = Optimizer(rank, options.settings), Meter(rank)
    for step in range(options.steps):
        batch = batch_of(data, job, rank.groups.data_rank, step).to(world.device)
        meter.start()
        result = train_step(rank, optimizer, batch, step)
        measure = meter.stop()
        step_time_s = max(measure.step_time_s)
        if world.rank == 0:
            emit(
                {
                    "step": step,
                    **asdict(result),
                    "step_time_s": step_time_s,
                    "tokens_per_s": job.workload.seq_len * job.layout.global_batch / step_time_s,
                    "peak_memory_bytes": max(measure.peak_memory_bytes),
                    "device": world.device.type,
                    "stage_step_time_s": list(measure.step_time_s),
                    "stage_peak_memory_bytes": list(measure.peak_memory_bytes),
                }
            )


def _start(job: Job, options: Options) -> tuple[Constants, Source]:
    """The constants of the model, and where its first weights come from."""
    if options.weights is None:
        return Constants(), Drawn(job.model, options.seed)
    from runtime.weights import Checkpoint

    return constants_in(options.weights, job.model), Checkpoint(options.weights, job)

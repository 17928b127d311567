"""What of a plan is executed: model, step, recipe, layout, and the stages without their predictions."""

from dataclasses import dataclass, replace

from cost_models.schedules import placement
from cost_models.schedules.table import ActionTable
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document import Chunk, Offload, Parallelism, PlanDocument, Recompute

__all__ = [
    "CHUNKS_PER_RANK",
    "Job",
    "StageJob",
    "VirtualStage",
    "action_table",
    "in_one_piece",
    "job_of",
    "virtual_stages",
]


# A rank of a context-parallel group has one chunk of a sequence from either end of it.
CHUNKS_PER_RANK = 2


@dataclass(frozen=True)
class StageJob:
    """One pipeline rank: its chunks, and how it saves memory."""

    chunks: tuple[Chunk, ...]
    zero_stage: int = 1
    reshard_after_forward: bool = False
    recompute: Recompute = Recompute()
    offload: Offload = Offload()


@dataclass(frozen=True)
class Job:
    """A plan as it is executed."""

    model: ModelSpec
    workload: WorkloadSpec
    recipe: FrameworkRecipe
    layout: Parallelism
    stages: tuple[StageJob, ...]


@dataclass(frozen=True)
class VirtualStage:
    """One chunk in the order of the model."""

    index: int
    rank: int
    chunk: Chunk
    recompute: tuple[frozenset[str], ...]
    """What each of its layers computes again."""


def job_of(document: PlanDocument) -> Job:
    """The job that a plan document describes."""
    stages = tuple(
        StageJob(
            chunks=stage.chunks,
            zero_stage=stage.zero_stage,
            reshard_after_forward=stage.reshard_after_forward,
            recompute=stage.recompute,
            offload=stage.offload,
        )
        for stage in document.stages
    )
    return Job(document.model, document.workload, document.recipe, document.parallelism, stages)


def in_one_piece(job: Job) -> Job:
    """The job of one process: the same model, step and recipe without anything parallel, recomputed or offloaded."""
    degrees = dict.fromkeys(("tp", "pp", "vpp", "cp", "dp", "dp_shard", "dp_replicate", "gpus_used"), 1)
    layout = job.layout.replaced(**degrees, sequence_parallel=False, schedule="1f1b", group_size=0)
    return replace(job, layout=layout, stages=(StageJob((Chunk(first_layer=0, layers=job.model.layers),)),))


def virtual_stages(job: Job) -> tuple[VirtualStage, ...]:
    """The chunks of all pipeline ranks in the order of the model; the first layers of a rank are those recomputed."""
    place = placement(job.layout.schedule, job.layout.pp, job.layout.vpp)
    stages = []
    for index, (rank, number) in enumerate(zip(place.rank.tolist(), place.chunk.tolist(), strict=True)):
        stage = job.stages[rank]
        before = sum(chunk.layers for chunk in stage.chunks[:number])
        modules = frozenset(stage.recompute.set)
        layers = range(before, before + stage.chunks[number].layers)
        sets = tuple(modules if layer < stage.recompute.layers else frozenset() for layer in layers)
        stages.append(VirtualStage(index, rank, stage.chunks[number], sets))
    return tuple(stages)


def action_table(job: Job) -> ActionTable:
    """What every pipeline rank does, in order. Raises IllegalScheduleError for sizes that the schedule lacks."""
    from cost_models import schedules

    layout = job.layout
    grouped = layout.schedule in schedules.GROUPED and layout.group_size
    return schedules.actions(
        layout.schedule,
        layout.pp,
        layout.vpp,
        layout.num_microbatches,
        slices=layout.slices,
        group_size=layout.group_size if grouped else None,
    )

"""Plan documents of small jobs, with predictions of another plan: runs do not read them."""

from pathlib import Path

from planner.document import PlanDocument, Stage, write
from planner.document.job import Job
from tests.planner.sample import CLUSTER, sample_document


def document_of(job: Job) -> PlanDocument:
    """A document that describes a job."""
    sample = sample_document()
    predicted = max((stage.predicted for stage in sample.stages), key=lambda one: one.device_bytes)
    last = len(job.stages) - 1
    stages = tuple(
        Stage(
            chunks=stage.chunks,
            layers=sum(chunk.layers for chunk in stage.chunks),
            has_embedding=rank == 0,
            has_head=rank == last,
            zero_stage=stage.zero_stage,
            reshard_after_forward=stage.reshard_after_forward,
            recompute=stage.recompute,
            offload=stage.offload,
            predicted=predicted,
        )
        for rank, stage in enumerate(job.stages)
    )
    return sample_document(
        model=job.model,
        cluster=CLUSTER.replaced(gpus=job.layout.gpus_used),
        workload=job.workload,
        recipe=job.recipe,
        parallelism=job.layout,
        stages=stages,
        alternatives=(),
    )


def written(job: Job, folder: Path) -> str:
    """The path of a document of a job."""
    path = folder / "plan.json"
    write(document_of(job), path)
    return str(path)

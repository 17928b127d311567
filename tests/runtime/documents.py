"""Plan documents of small jobs; what they predict is made up."""

from planner.document import Certificate, MemoryByCause, PeakMemory, PlanDocument, Prediction, Stage, StagePrediction
from runtime.job import Job, virtual_stages
from tests.planner.sample import CLUSTER, sample_document

STEP_S = 0.25
BYTES = 2.0**30


def document_of(job: Job) -> PlanDocument:
    """A document that describes a job."""
    last = virtual_stages(job)[-1].rank
    memory = MemoryByCause(weights=BYTES)
    predicted = StagePrediction(
        forward_s=0.01,
        input_grad_s=0.01,
        weight_grad_s=0.01,
        memory_bytes=memory,
        allocated_bytes=BYTES,
        reserved_bytes=BYTES,
        device_bytes=BYTES,
    )
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
        cluster=CLUSTER.replaced(gpus=max(8, job.layout.gpus_used)),
        workload=job.workload,
        recipe=job.recipe,
        parallelism=job.layout,
        stages=stages,
        predicted=Prediction(
            step_time_s=STEP_S,
            step_time_low_s=STEP_S,
            step_time_high_s=STEP_S,
            tokens_per_s_per_gpu=1.0,
            mfu=0.1,
            mfu_full_attention=0.1,
            time_breakdown_s={"compute": STEP_S},
            peak_memory_bytes=PeakMemory(
                allocated=BYTES,
                reserved=BYTES,
                device=BYTES,
                capacity=2 * BYTES,
                low=BYTES,
                high=BYTES,
                breakdown=memory,
            ),
            verdict="yes",
            measured_share=0.0,
        ),
        certificate=Certificate(
            status="OPTIMAL", objective_s=STEP_S, bound_s=STEP_S, gap=0.0, method="none", layouts=1, rows=1
        ),
        alternatives=(),
    )

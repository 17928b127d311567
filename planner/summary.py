"""What tables and charts show of a plan: a short record, made from its document alone."""

from typing import Self

from pydantic import Field

from cost_models.specs.base import PositiveFloat
from cost_models.specs.parameters import parameters
from planner.document import Parallelism, PlanDocument, Verdict, recompute_summary, zero_summary
from planner.document.record import ByKey, Bytes, Degree, Fraction, Record, Seconds
from planner.report.quantities import batch, degrees

__all__ = ["PlanSummary"]


class PlanSummary(Record):
    """A plan in figures: what it trains on, its layout, what a step of it takes. Made by `of`."""

    model: str
    gpu: str
    gpu_power_w: PositiveFloat = Field(description="board power limit of one GPU, W")
    gpus: Degree = Field(description="GPUs of the cluster, those left idle too")
    gpus_per_node: Degree
    nodes: Degree
    seq_len: Degree = Field(description="tokens of a sequence")
    global_batch: Degree = Field(description="sequences of a step")
    tokens: Degree = Field(description="tokens of a step")
    precision: str
    optimizer: str
    recipe: str
    parallelism: Parallelism
    layout: str = Field(description="the degrees and the ZeRO level in words")
    batch: str = Field(description="micro-batches and schedule in words")
    zero_stage: str = Field(description="ZeRO levels of the stages, such as 1 or 1-3")
    recompute: str = Field(description="what is computed again, such as core_attention 40/80")
    offload: Fraction = Field(description="largest fraction of anything that a stage keeps on the host")
    step_time_s: Seconds
    step_time_low_s: Seconds
    step_time_high_s: Seconds
    tokens_per_s: PositiveFloat = Field(description="of the whole job")
    tokens_per_s_per_gpu: PositiveFloat = Field(description="over the GPUs in use")
    mfu: Fraction
    time_breakdown_s: ByKey[Seconds] = Field(description="step time by cause")
    device_bytes: Bytes = Field(description="peak of the fullest GPU")
    capacity_bytes: Bytes = Field(description="usable bytes of one GPU")
    memory_breakdown_bytes: ByKey[Bytes] = Field(description="device_bytes by cause")
    host_memory_bytes: Bytes = Field(description="host memory taken on one node")
    verdict: Verdict
    checkpoint_bytes: Bytes = Field(description="weights, master weights and moments of all parameters, once")
    certificate: str = Field(description="OPTIMAL, or FEASIBLE where a limit stopped the search")
    gap: Fraction = Field(description="fraction by which another plan could be faster at most")

    @classmethod
    def of(cls, document: PlanDocument) -> Self:
        """The summary of a plan document."""
        cluster, workload, predicted = document.cluster, document.workload, document.predicted
        peak = predicted.peak_memory_bytes
        return cls(
            model=document.model.name,
            gpu=cluster.gpu.name,
            gpu_power_w=cluster.gpu.power_w,
            **{name: getattr(cluster, name) for name in ("gpus", "gpus_per_node", "nodes")},
            **{name: getattr(workload, name) for name in ("seq_len", "global_batch", "tokens", "precision")},
            optimizer=workload.optimizer,
            recipe=document.recipe.name,
            **_layout(document),
            **{name: getattr(predicted, name) for name in ("step_time_s", "step_time_low_s", "step_time_high_s")},
            tokens_per_s=workload.tokens / predicted.step_time_s,
            **{name: getattr(predicted, name) for name in ("tokens_per_s_per_gpu", "mfu", "time_breakdown_s")},
            device_bytes=peak.device,
            capacity_bytes=peak.capacity,
            memory_breakdown_bytes={name: value for name, value in peak.breakdown if value},
            host_memory_bytes=predicted.host_memory_bytes,
            verdict=predicted.verdict,
            checkpoint_bytes=checkpoint_bytes(document),
            certificate=document.certificate.status,
            gap=document.certificate.gap,
        )


def _layout(document: PlanDocument) -> dict[str, object]:
    """The fields that say how the job is laid out."""
    layout, stages = document.parallelism, document.stages
    zero = zero_summary(stages)
    return {
        "parallelism": layout,
        "layout": degrees(layout, zero),
        "batch": batch(layout),
        "zero_stage": zero,
        "recompute": recompute_summary(stages),
        "offload": max(float(fraction) for stage in stages for _, fraction in stage.offload),
    }


def checkpoint_bytes(document: PlanDocument) -> float:
    """Bytes of a checkpoint that training goes on from: weights, master weights and moments; gradients are not kept."""
    recipe = document.recipe
    return (recipe.weight_bytes + recipe.master_bytes + recipe.moment_bytes) * parameters(document.model)

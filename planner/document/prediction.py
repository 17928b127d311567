"""What a plan costs, how sure that is, and what came close."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Flag, PositiveFloat
from planner.document.parallelism import Parallelism
from planner.document.record import (
    ByKey,
    Bytes,
    Count,
    Degree,
    FiniteFloat,
    Fraction,
    Record,
    Seconds,
    agree,
    check_band,
)
from planner.document.stage import MemoryByCause, check_memory

Verdict = Literal["yes", "borderline", "no"]


def verdict_of(low_bytes: float, high_bytes: float, capacity_bytes: float) -> Verdict:
    """Whether a band of bytes fits: `no` when its lower end is over capacity, `yes` when its upper end is within."""
    if low_bytes > capacity_bytes:
        return "no"
    return "yes" if high_bytes <= capacity_bytes else "borderline"


class PeakMemory(Record):
    """The fullest GPU of the job, bytes."""

    allocated: Bytes = Field(description="live tensors")
    reserved: Bytes = Field(description="held by the allocator")
    device: Bytes = Field(description="reported by the device")
    capacity: Bytes = Field(description="usable bytes of one GPU")
    low: Bytes = Field(description="lower end of the band around `device`")
    high: Bytes = Field(description="upper end of the band around `device`")
    breakdown: MemoryByCause = Field(description="`device` by cause")

    @model_validator(mode="after")
    def _levels_in_order(self) -> Self:
        check_memory(self.breakdown, self.allocated, self.reserved, self.device)
        check_band("device", self.low, self.device, self.high)
        return self


class Prediction(Record):
    """What one step of the plan costs."""

    step_time_s: Seconds = Field(description="the schedule's action table replayed")
    step_time_low_s: Seconds = Field(description="lower end of the band")
    step_time_high_s: Seconds = Field(description="upper end of the band")
    tokens_per_s_per_gpu: PositiveFloat = Field(description="over the GPUs in use")
    mfu: Fraction = Field(description="model FLOPs with causal attention halved, over the dense peak")
    mfu_full_attention: Fraction = Field(description="the same with attention counted in full")
    time_breakdown_s: ByKey[Seconds] = Field(description="step time by cause; adds up to step_time_s")
    peak_memory_bytes: PeakMemory
    host_memory_bytes: Bytes = Field(default=0.0, description="host memory that the plan takes on one node")
    verdict: Verdict = Field(description="whether it fits, given the band")
    measured_share: Fraction = Field(description="share of the step time that rests on measured kernels and links")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_band("step_time_s", self.step_time_low_s, self.step_time_s, self.step_time_high_s)
        total = sum(self.time_breakdown_s.values())
        if not agree(total, self.step_time_s):
            message = f"time_breakdown_s must add up to step_time_s = {self.step_time_s:.9g}, got {total:.9g}"
            raise ValueError(message)
        peak = self.peak_memory_bytes
        expected = verdict_of(peak.low, peak.high, peak.capacity)
        if self.verdict != expected:
            message = f"verdict must be {expected!r} for the band and capacity given, got {self.verdict!r}"
            raise ValueError(message)
        return self


class Certificate(Record):
    """How far any other plan of the search could be better."""

    status: Literal["OPTIMAL", "FEASIBLE"] = Field(description="FEASIBLE: a limit stopped the search first")
    objective_s: Seconds = Field(description="step time of record")
    bound_s: Seconds = Field(description="no plan of the search is faster than this")
    gap: Fraction = Field(description="(objective_s - bound_s) / objective_s")
    method: str = Field(min_length=1, description="how the bound was proven")
    layouts: Count = Field(description="legal layouts")
    rows: Count = Field(description="options of stages that were costed")

    @model_validator(mode="after")
    def _gap_is_the_quotient(self) -> Self:
        expected = 1 - self.bound_s / self.objective_s if self.objective_s else 0.0
        if abs(self.gap - expected) > 1e-6:
            message = f"gap must be (objective_s - bound_s) / objective_s = {expected:.9g}, got {self.gap:.9g}"
            raise ValueError(message)
        return self


class Alternative(Record):
    """The best plan of another layout."""

    parallelism: Parallelism
    step_time_s: Seconds
    slower_by: FiniteFloat = Field(description="fraction by which its step is longer than the best plan's")
    device_bytes: Bytes = Field(description="peak of its fullest GPU")
    zero_stage: str = Field(description="ZeRO levels of its stages, such as 1 or 1-3")
    recompute: str = Field(description="what it computes again, such as core_attention 40/80")
    tie: Flag = Field(description="within the band: the prediction cannot tell it from the best")


class RecipeVariant(Record):
    """A variant of the recipe that was searched, and what it costs."""

    precision: str = Field(description="data type of the matrix products")
    optimizer: str
    loss: str = Field(description="plain, fused or chunked")
    step_time_s: Seconds = Field(description="of its best plan found, else of the document's plan under it")
    bound_s: Seconds = Field(description="no plan of the variant that was looked at is faster than this")
    device_bytes: Bytes = Field(description="peak of the fullest GPU of that plan")
    fits: Flag = Field(description="whether that plan fits, with the margin")
    own_plan: Flag = Field(description="whether it is a plan found for the variant")


class HeterogeneousStage(Record):
    """One pipeline rank of a plan whose stages differ in size."""

    layers: Count = Field(description="repeating groups of layers")
    gpus: Degree = Field(description="tp * dp")
    tp: Degree
    dp: Degree
    micro_batch_size: Degree = Field(description="sequences of one of its data-parallel ranks at a time")
    zero_stage: Count
    recompute_layers: Count = Field(description="groups of layers that compute something again")
    device_bytes: Bytes = Field(description="peak of one of its GPUs")
    gpu: str = Field(min_length=1, description="kind of its GPUs")


class HeterogeneousPlan(Record):
    """The fastest 1F1B pipeline whose stages have GPUs, TP and DP of their own, where it beats the document's plan."""

    stages: tuple[HeterogeneousStage, ...] = Field(min_length=2)
    num_microbatches: Degree
    step_time_s: Seconds
    bound_s: Seconds = Field(description="no such pipeline is faster than this")
    faster_by: Fraction = Field(description="fraction by which its step is shorter than the document's plan's")

    @model_validator(mode="after")
    def _stages_agree(self) -> Self:
        for rank, stage in enumerate(self.stages):
            if stage.gpus != stage.tp * stage.dp:
                message = f"stages[{rank}].gpus must be tp * dp = {stage.tp * stage.dp}, got {stage.gpus}"
                raise ValueError(message)
            first = self.stages[0]
            if stage.dp * stage.micro_batch_size != first.dp * first.micro_batch_size:
                message = (
                    f"stages[{rank}].dp * micro_batch_size must be that of stage 0 = "
                    f"{first.dp * first.micro_batch_size}, got {stage.dp * stage.micro_batch_size}"
                )
                raise ValueError(message)
        return self


class LauncherAnswer(Record):
    """Whether a launcher can express the plan."""

    expressible: Flag
    why_not: tuple[str, ...] = Field(default=(), description="one line for each rule that the plan breaks")
    best_step_time_s: Seconds | None = Field(default=None, description="fastest plan that the launcher can express")

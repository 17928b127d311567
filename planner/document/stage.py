"""One pipeline rank of a plan: its layers, its memory knobs and what they cost."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Flag
from planner.document.record import Bytes, Count, Fraction, Record, Seconds, agree

ZeroStage = Annotated[Count, Field(le=3)]
RecomputeModule = Literal["norm", "activation", "core_attention", "mla_up_proj", "mlp", "moe", "shared_experts", "full"]


class Chunk(Record):
    """A run of consecutive layers."""

    first_layer: Count = Field(description="index of its first layer, from 0")
    layers: Count = Field(description="number of layers")


class Recompute(Record):
    """What the backward pass computes again, and on how many layers of the stage."""

    set: tuple[RecomputeModule, ...] = Field(default=(), description="modules whose activations are not kept")
    layers: Count = Field(default=0, description="layers of the stage that do it")

    @model_validator(mode="after")
    def _set_and_layers_go_together(self) -> Self:
        if bool(self.set) != bool(self.layers):
            message = f"set is {list(self.set)} but layers is {self.layers}: give both or neither"
            raise ValueError(message)
        return self


class Offload(Record):
    """Fractions kept in host memory."""

    weights: Fraction = 0.0
    gradients: Fraction = 0.0
    optimizer: Fraction = 0.0
    activations: Fraction = 0.0


class MemoryByCause(Record):
    """Bytes of one GPU at its peak, by cause. They add up to what the device reports."""

    weights: Bytes = Field(default=0.0, description="parameters in the compute dtype")
    gradients: Bytes = Field(default=0.0, description="gradient buffers")
    master_weights: Bytes = Field(default=0.0, description="parameters in the optimizer's dtype")
    moments: Bytes = Field(default=0.0, description="first and second moments of the optimizer")
    activations: Bytes = Field(default=0.0, description="saved for the backward pass")
    gathered_parameters: Bytes = Field(default=0.0, description="parameters of other ranks, held for a while")
    logits_and_loss: Bytes = Field(default=0.0, description="logits, their softmax and its gradient")
    workspace: Bytes = Field(default=0.0, description="scratch space of kernels and temporaries of a layer")
    offload_buffers: Bytes = Field(default=0.0, description="states and activations on their way to or from the host")
    pipeline_buffers: Bytes = Field(default=0.0, description="activations sent and received between stages")
    communicators: Bytes = Field(default=0.0, description="buffers of the collective library")
    context: Bytes = Field(default=0.0, description="device context and loaded kernels")
    fragmentation: Bytes = Field(default=0.0, description="held by the allocator and not used")

    def items(self) -> tuple[tuple[str, float], ...]:
        """The (cause, bytes) pairs, in the order of the fields."""
        return tuple((cause, getattr(self, cause)) for cause in MEMORY_CAUSES)

    @property
    def total_bytes(self) -> float:
        """Sum over all causes."""
        return sum(amount for _, amount in self.items())


MEMORY_CAUSES: tuple[str, ...] = tuple(MemoryByCause.model_fields)


class StagePrediction(Record):
    """Seconds of one micro-batch through all chunks of the stage, and bytes of one of its GPUs."""

    forward_s: Seconds = Field(description="forward pass")
    input_grad_s: Seconds = Field(description="backward pass towards the input, with recompute")
    weight_grad_s: Seconds = Field(description="backward pass towards the weights")
    first_s: Seconds = Field(default=0.0, description="work that must be done before the first forward of a step")
    last_s: Seconds = Field(default=0.0, description="work after the last backward of a step")
    memory_bytes: MemoryByCause = Field(description="the device's bytes by cause")
    allocated_bytes: Bytes = Field(description="peak of live tensors")
    reserved_bytes: Bytes = Field(description="peak of what the allocator holds")
    device_bytes: Bytes = Field(description="peak that the device reports: reserved, context and communicators")
    host_bytes: Bytes = Field(default=0.0, description="host memory that one GPU of the stage takes")

    @model_validator(mode="after")
    def _memory_adds_up(self) -> Self:
        check_memory(self.memory_bytes, self.allocated_bytes, self.reserved_bytes, self.device_bytes)
        return self


class StageChoice(Record):
    """What one pipeline rank holds and how it keeps within memory."""

    chunks: tuple[Chunk, ...] = Field(min_length=1, description="its chunks, first to last")
    layers: Count = Field(description="sum over its chunks")
    has_embedding: Flag = Field(description="holds the token embedding")
    has_head: Flag = Field(description="holds the final norm, the output projection and the loss")
    zero_stage: ZeroStage = Field(description="1: optimizer states are sharded, 2: gradients too, 3: parameters too")
    reshard_after_forward: Flag = Field(default=False, description="gathered parameters are freed after the forward")
    recompute: Recompute = Recompute()
    offload: Offload = Offload()

    @model_validator(mode="after")
    def _layers_add_up(self) -> Self:
        total = sum(chunk.layers for chunk in self.chunks)
        if self.layers != total:
            message = f"layers must be the sum over chunks = {total}, got {self.layers}"
            raise ValueError(message)
        if self.recompute.layers > self.layers:
            message = f"recompute.layers must be <= layers = {self.layers}, got {self.recompute.layers}"
            raise ValueError(message)
        return self


class Stage(StageChoice):
    """One pipeline rank."""

    predicted: StagePrediction

    @property
    def choice(self) -> StageChoice:
        """The stage without what it costs."""
        return StageChoice(**{name: getattr(self, name) for name in StageChoice.model_fields})


def check_memory(causes: MemoryByCause, allocated: float, reserved: float, device: float) -> None:
    """Nothing when the causes add up to the device's bytes and the three levels are in order; ValueError otherwise."""
    if not agree(causes.total_bytes, device):
        message = f"the causes of memory must add up to the device's {device:.9g} bytes, got {causes.total_bytes:.9g}"
        raise ValueError(message)
    if allocated > reserved and not agree(allocated, reserved):
        message = f"allocated must be <= reserved = {reserved:.9g} bytes, got {allocated:.9g}"
        raise ValueError(message)
    if reserved > device and not agree(reserved, device):
        message = f"reserved must be <= device = {device:.9g} bytes, got {reserved:.9g}"
        raise ValueError(message)


def zero_summary(stages: tuple[Stage, ...]) -> str:
    """The ZeRO levels of the stages in words: `1` when all are equal, `1-3` otherwise."""
    levels = sorted({stage.zero_stage for stage in stages})
    return str(levels[0]) if len(levels) == 1 else f"{levels[0]}-{levels[-1]}"


def recompute_summary(stages: tuple[Stage, ...]) -> str:
    """What is recomputed, on how many of all layers: `none`, `full`, `core_attention 40/80`."""
    layers = sum(stage.layers for stage in stages)
    counts: dict[str, int] = {}
    for stage in stages:
        if stage.recompute.set:
            name = "+".join(stage.recompute.set)
            counts[name] = counts.get(name, 0) + stage.recompute.layers
    parts = [name if count == layers else f"{name} {count}/{layers}" for name, count in sorted(counts.items())]
    return ", ".join(parts) or "none"

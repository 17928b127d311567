"""What a training framework stores, fuses and overlaps; facts about it, not rules on what it accepts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cost_models.specs.base import Flag, Name, NonNegativeFloat, NonNegativeInt, PositiveInt, Sources, Spec

BytesPerValue = Annotated[NonNegativeFloat, Field(le=64)]


class FrameworkRecipe(Spec):
    """Bytes per parameter, fusion, overlap and allocator habits of one framework."""

    label: ClassVar[str] = "recipe"

    name: Name = Field(description="name shown in reports")
    weight_bytes: BytesPerValue = Field(2, description="working weights, bytes per parameter")
    gradient_bytes: BytesPerValue = Field(4, description="gradient accumulator, bytes per parameter")
    master_bytes: BytesPerValue = Field(4, description="fp32 master weights, bytes per parameter")
    moment_bytes: BytesPerValue = Field(8, description="optimizer moments, bytes per parameter")
    gradient_reduce_bytes: BytesPerValue = Field(4, description="gradient on the wire, bytes per parameter")
    parameter_gather_bytes: BytesPerValue = Field(2, description="gathered weights on the wire, bytes per parameter")
    flash_attention: Flag = Field(True, description="attention without stored scores")
    dropout: Flag = Field(False, description="dropout masks are kept for backward")
    sequence_parallel: Flag = Field(
        True, description="tensor parallelism shards norms and residuals along the sequence"
    )
    overlap_gradient_reduce: Flag = Field(True, description="gradient reduction runs beside backward")
    overlap_parameter_gather: Flag = Field(True, description="parameter gather runs beside forward")
    loss_bytes_per_logit: BytesPerValue = Field(10, description="logits, their fp32 copy and gradient, bytes per logit")
    fragmentation_fraction: Annotated[NonNegativeFloat, Field(lt=1)] = Field(
        0.06, description="reserved over allocated memory, less 1"
    )
    communicator_bytes: NonNegativeInt = Field(429_496_730, description="device memory of one communicator, bytes")
    optimizer_temporary_bytes: BytesPerValue = Field(
        0, description="temporaries of the optimizer step, bytes per parameter"
    )
    vocab_multiple: PositiveInt = Field(128, description="the vocabulary is padded to this times the TP degree")
    expert_dispatcher: Literal["alltoall", "deduplicated"] = Field(
        "alltoall", description="how copies of a token travel to its experts; deduplicated: once to each node"
    )
    cuda_graphs: Flag = Field(False, description="kernels are replayed from graphs, without host launches")
    sources: Sources = Field(
        default_factory=dict, description="the source of every figure, by field", validate_default=True
    )

"""What a training framework stores, fuses and overlaps; facts about it, not rules on what it accepts."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cost_models.specs.base import (
    Flag,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Sources,
    Spec,
)

BytesPerValue = Annotated[NonNegativeFloat, Field(le=64)]


def _is_zero(value: float) -> bool:
    """Whether a recipe has nothing of a kind, so that it is left out of documents and digests."""
    return value == 0


def _is_so(value: bool) -> bool:
    """Whether a recipe does what nearly all do, so that it is left out of documents and digests."""
    return value


class FrameworkRecipe(Spec):
    """Bytes per parameter, fusion, overlap and allocator habits of one framework."""

    label: ClassVar[str] = "recipe"

    name: Name = Field(description="name shown in reports")
    weight_bytes: BytesPerValue = Field(2, description="working weights, bytes per parameter")
    gradient_bytes: BytesPerValue = Field(4, description="gradient accumulator, bytes per parameter")
    master_bytes: BytesPerValue = Field(4, description="fp32 master weights, bytes per parameter")
    moment_bytes: BytesPerValue = Field(8, description="optimizer moments, bytes per parameter")
    parameter_copy_bytes: BytesPerValue = Field(
        0,
        description="moved by casting and laying out weights for their products, each time, bytes per parameter",
        exclude_if=_is_zero,
    )
    gradient_copy_bytes: BytesPerValue = Field(
        0,
        description="moved by casting and laying out gradients to be reduced, each time, bytes per parameter",
        exclude_if=_is_zero,
    )
    gradient_reduce_bytes: BytesPerValue = Field(4, description="gradient on the wire, bytes per parameter")
    parameter_gather_bytes: BytesPerValue = Field(2, description="gathered weights on the wire, bytes per parameter")
    tuned_rate: Annotated[PositiveFloat, Field(ge=0.5, le=1.5)] = Field(
        1.0, description="rate of products and attention over the profile's, where a GPU's vendor tunes and runs them"
    )
    flash_attention: Flag = Field(True, description="attention without stored scores")
    attention_kernel: Literal["native", "flash2", "triton"] = Field(
        "native",
        description="flash attention written for the device, FlashAttention-2 (Ampere's), or the first in Triton",
    )
    fused_norm: Flag = Field(
        True, description="a norm is one kernel; else it is computed in fp32 copies, which it keeps"
    )
    fused_activation: Flag = Field(
        True, description="a gated activation is one kernel; else the activated gate is kept too"
    )
    fused_rope: Flag = Field(True, description="rotary positions are one kernel; else they go through fp32 copies")
    fused_biased_activation: Flag = Field(
        False, description="a gated activation of experts with biases, clamped, is one kernel; else a chain of them"
    )
    fused_gradient_accumulation: Flag = Field(
        True, description="weight gradients are added up within their products; else by kernels of their own"
    )
    recompute_stops_early: Flag = Field(
        False,
        description="running a layer again ends with the last tensor that its backward needs; else with its output",
    )
    keeps_cast_operands: Flag = Field(
        True, description="operands of fp8 products are kept as they were cast; else in bf16, and cast once more"
    )
    keeps_gathered_operands: Flag = Field(
        False, description="what sequence parallelism gathers for a product is kept whole; else gathered once more"
    )
    dropout: Flag = Field(False, description="dropout masks are kept for backward")
    sequence_parallel: Flag = Field(
        True, description="tensor parallelism shards norms and residuals along the sequence"
    )
    overlap_gradient_reduce: Flag = Field(True, description="gradient reduction runs beside backward")
    reduces_each_micro_batch: Flag = Field(
        True, description="sharded gradients are reduced after every micro-batch; else once, after the last"
    )
    reduces_in_buckets: Flag = Field(
        False, description="gradients are sharded unit by unit within a backward; else a chunk's after its backward"
    )
    overlap_parameter_gather: Flag = Field(True, description="parameter gather runs beside forward")
    overlap_tensor_parallel: Flag = Field(
        False, description="tensor-parallel collectives run in pieces beside the products that they feed or follow"
    )
    overlap_expert_parallel: Flag = Field(
        False, description="the experts' exchanges run beside another micro-batch's compute"
    )
    loss_bytes_per_logit: BytesPerValue = Field(
        6, description="most that the logits, their copies and gradient take at one time, bytes per logit"
    )
    loss_traffic_bytes: BytesPerValue = Field(
        16, description="moved by the loss, forward and backward, bytes per logit"
    )
    zero_stage: Annotated[NonNegativeInt, Field(le=3)] = Field(
        1, description="sharding of states where a run does not say: 0 none, 1 optimizer, 2 gradients, 3 weights"
    )
    interleaves: Flag = Field(
        False, description="recipes of this framework interleave wherever a pipeline is short of work"
    )
    fills_stages: Flag = Field(
        False, description="layers that do not divide into stages leave the last one short; else they are dealt evenly"
    )
    reshards_in_pipeline: Flag = Field(
        True, description="sharded weights are freed after each forward with pipeline parallelism too"
    )
    keeps_stage_outputs: Flag = Field(
        False, description="what a pipeline stage hands on stays allocated until the backward of its micro-batch"
    )
    split_keeps_graph: Flag = Field(
        False, description="a backward that is split keeps all that its forward kept until its weight gradients"
    )
    splits_first_stage: Flag = Field(
        True,
        description="a backward that is split is so on the model's first stage, too; else all of it comes with the "
        "weight gradients there",
        exclude_if=_is_so,
    )
    fragmentation_fraction: Annotated[NonNegativeFloat, Field(lt=1)] = Field(
        0.06, description="reserved over allocated memory, less 1"
    )
    growing_segments: Flag = Field(
        True,
        description="what the passes leave free serves the optimizer's copies; else these need blocks of their own",
    )
    stranded_logit_bytes: BytesPerValue = Field(
        0, description="reserved beside the loss's peak, of a block that no later tensor fits, bytes per logit"
    )
    library_bytes: NonNegativeInt = Field(
        84_000_000, description="workspaces that matrix and attention libraries hold inside the allocator, bytes"
    )
    placeholder_gradient_bytes: BytesPerValue = Field(
        0, description="kept for the gradient that autograd expects of a fused weight gradient, bytes per element"
    )
    communicator_bytes: NonNegativeInt = Field(429_496_730, description="device memory of one communicator, bytes")
    optimizer_temporary_bytes: BytesPerValue = Field(
        0, description="temporaries of the optimizer step, bytes per parameter"
    )
    optimizer_group_elements: NonNegativeInt = Field(
        0, description="most parameters that the optimizer steps at one time where weights are sharded; 0: all of them"
    )
    norm_copy_bytes: BytesPerValue = Field(
        0, description="copy of the largest gradient of a rank that its norm is taken of, bytes per element"
    )
    norm_of_shards: Flag = Field(
        True, description="the norm is taken of the gradients that a rank owns; else of whole ones before sharding"
    )
    kernel_bytes: NonNegativeInt = Field(
        0, description="device code that libraries load at once, beside the profile's context, bytes"
    )
    vocab_multiple: PositiveInt = Field(128, description="the vocabulary is padded to this times the TP degree")
    expert_dispatcher: Literal["alltoall", "deduplicated"] = Field(
        "alltoall", description="how copies of a token travel to its experts; deduplicated: once to each node"
    )
    launch_factor: Annotated[PositiveFloat, Field(ge=0.5, le=20)] = Field(
        1.0, description="host time of a launch over the profile's: modules and hooks in Python take longer"
    )
    host_runs_ahead: Flag = Field(
        True,
        description="what the host does between operators hides behind the device's work; on a processor it adds up",
    )
    launches_per_expert: Flag = Field(True, description="the products of a rank's experts are launched one by one")
    cuda_graphs: Flag = Field(False, description="kernels are replayed from graphs, without host launches")
    cuda_graphs_without_experts: Flag = Field(
        False, description="all but routed experts and their exchange are replayed from graphs"
    )
    sources: Sources = Field(
        default_factory=dict, description="the source of every figure, by field", validate_default=True
    )

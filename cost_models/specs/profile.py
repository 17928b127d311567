"""What kernels and links reach of a GPU's peaks: constants that bind operators to seconds."""

from collections.abc import Mapping
from math import log2
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, Field, model_validator

from cost_models.specs.base import (
    Fraction,
    FractionByName,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Sources,
    Spec,
    frozen,
)
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.kernel_tables import KernelTables, is_none
from cost_models.specs.provenance import MeasuredPart, Provenance
from cost_models.specs.slowdowns import Slowdowns

Slowdown = Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)]


class GemmRoofline(Spec):
    """A GEMM takes max(flops / (peak * peak_fraction), bytes / (bandwidth * bandwidth_fraction)) + launch_s."""

    label: ClassVar[str] = "gemm"

    peak_fraction: Fraction = Field(description="reached share of the dense peak, isolated kernel")
    bandwidth_fraction: Fraction = Field(description="reached share of the memory bandwidth")
    launch_s: NonNegativeFloat = Field(description="fixed time of one GEMM on the device, s")


class AttentionRoofline(Spec):
    """Causal flash attention reaches peak_fraction * s / (s + half_length) of the dense peak, less when tiles are few.

    The share is multiplied by min(1, heads_per_rank * batch * (s / tile_rows) / (tiles_per_multiprocessor * SMs)),
    and FLOPs are causal: 2 * batch * heads * s^2 * head_dim forward. Backward reaches `backward_fraction` of it.
    """

    label: ClassVar[str] = "attention"

    peak_fraction: Fraction = Field(description="share of the dense peak at infinite length and full occupancy")
    half_length: NonNegativeFloat = Field(description="tokens at which half of peak_fraction is reached")
    tiles_per_multiprocessor: PositiveFloat = Field(2.0, description="tiles that fill one multiprocessor")
    tile_rows: PositiveInt = Field(128, description="query rows of one tile")
    backward_fraction: Fraction = Field(0.85, description="backward share over forward share")
    kernels: FractionByName = Field(
        default_factory=dict,
        description="what other kernels than the device's best reach of its rate, by the recipe's attention_kernel",
        validate_default=True,
    )


class ElementwiseRoofline(Spec):
    """A memory-bound operator takes bytes / (bandwidth * bandwidth_fraction) + launch_s."""

    label: ClassVar[str] = "elementwise"

    bandwidth_fraction: Fraction = Field(description="reached share of the memory bandwidth")
    launch_s: NonNegativeFloat = Field(description="fixed time of one kernel on the device, s")


class OverlapSlowdown(Spec):
    """By what factor each side takes longer while compute and a collective run together."""

    label: ClassVar[str] = "overlap"

    compute_slowdown: Slowdown = Field(description="factor on compute time, >= 1")
    communication_slowdown: Slowdown = Field(description="factor on collective time, >= 1")


GemmByName = Annotated[Mapping[str, GemmRoofline], AfterValidator(frozen)]


class HardwareProfile(Spec):
    """Constants of one device, and tables that refine them; every one names its source.

    A profile that was measured by `plan profile` has a `provenance`; specs/measured_profile.py is its file.
    """

    label: ClassVar[str] = "profile"

    name: Name = Field(description="name shown in reports")
    gpu: Name = Field(description="catalog name of the GPU these constants belong to")
    gemm: GemmByName = Field(description="GEMM roofline by data type: bf16, fp8")
    attention: AttentionRoofline = Field(description="causal flash attention")
    elementwise: ElementwiseRoofline = Field(description="norms, activations, residuals, casts")
    host_launch_s: NonNegativeFloat = Field(description="host time to launch one kernel, s")
    beyond: BeyondOperators | None = Field(
        None, description="what a layer takes in a run beyond its operators", exclude_if=is_none
    )
    beyond_shared: BeyondOperators | None = Field(
        None, description="the same of a layer that tensor-parallel ranks share, in place of it", exclude_if=is_none
    )
    hop_end_s: NonNegativeFloat | None = Field(
        None,
        description="what sending to the next stage takes of the sender, and receiving of the receiver, where the host "
        "does not run ahead, s",
        exclude_if=is_none,
    )
    hop_end_token_s: NonNegativeFloat | None = Field(
        None, description="the same for each token of a rank's micro-batch, s", exclude_if=is_none
    )
    sustained_fraction: Fraction = Field(description="compute rate in a long run over the isolated kernel's rate")
    straggling_per_doubling: Annotated[NonNegativeFloat, Field(le=0.1)] = Field(
        0.0, description="compute time that each doubling of the nodes adds, waiting for the slowest; as a fraction"
    )
    link_fraction: FractionByName = Field(
        description="reached share of the line rate by kind of link: nvlink, pcie, network"
    )
    collective_base_latency_s: NonNegativeFloat = Field(description="fixed time of one collective, s")
    overlap: OverlapSlowdown = Field(description="interference of compute and collectives")
    interference: Name = Field(
        "a100-40-sxm", description="entry of data/interference that tells how host copies interfere with both"
    )
    slowdowns: Slowdowns | None = Field(
        None, description="how four streams interfere on this host, in place of `interference`", exclude_if=is_none
    )
    tables: KernelTables | None = Field(None, description="measured tables of kernels; without them the constants hold")
    context_bytes: NonNegativeInt = Field(description="CUDA context and loaded kernels, outside the allocator, bytes")
    communicator_bytes: NonNegativeInt | None = Field(
        None, description="device memory of one communicator, bytes, in place of the recipe's", exclude_if=is_none
    )
    fragmentation_fraction: Annotated[NonNegativeFloat, Field(lt=1)] | None = Field(
        None,
        description="what the allocator reserves beyond what is allocated, in place of the recipe's",
        exclude_if=is_none,
    )
    provenance: Provenance | None = Field(
        None, description="how the figures were measured, where one run measured them", exclude_if=is_none
    )
    sources: Sources = Field(
        default_factory=dict, description="the source of every figure, by field", validate_default=True
    )

    def is_measured(self, part: MeasuredPart) -> bool:
        """Whether one run measured a part of this profile."""
        return self.provenance is not None and part in self.provenance.tables

    def sustained_on(self, nodes: int) -> float:
        """Compute rate of a long run on that many nodes, over the isolated kernel's: the slowest node sets the pace."""
        return self.sustained_fraction / (1.0 + self.straggling_per_doubling * log2(max(1, nodes)))

    @model_validator(mode="after")
    def _has_bf16(self) -> Self:
        if "bf16" not in self.gemm:
            message = f"gemm must name bf16, got {sorted(self.gemm)}"
            raise ValueError(message)
        return self

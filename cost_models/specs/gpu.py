"""One accelerator, as its data sheet and its driver describe it."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from cost_models.specs.base import FloatByName, Name, NonNegativeFloat, PositiveFloat, PositiveInt, Sources, Spec


class GpuSpec(Spec):
    """One GPU: memory, bandwidths and dense peaks; what a kernel reaches of them is in HardwareProfile."""

    label: ClassVar[str] = "gpu"

    name: Name = Field(description="catalog name")
    nominal_memory_bytes: PositiveInt = Field(description="memory on the label: 80e9 for '80 GB'")
    usable_memory_bytes: PositiveInt = Field(description="total memory that the CUDA runtime reports")
    memory_bandwidth_bytes_per_s: PositiveFloat = Field(description="data-sheet memory bandwidth, bytes/s")
    peak_flops: FloatByName = Field(description="dense tensor-core FLOP/s by data type: bf16, fp8")
    streaming_multiprocessors: PositiveInt = Field(description="multiprocessors of the device")
    nvlink_bandwidth_bytes_per_s: NonNegativeFloat = Field(
        description="NVLink bytes/s in one direction, 0 without NVLink"
    )
    pcie_bandwidth_bytes_per_s: PositiveFloat = Field(description="PCIe bytes/s in one direction, line rate")
    power_w: PositiveFloat = Field(description="board power limit, W")
    sources: Sources = Field(
        default_factory=dict, description="the source of every figure, by field", validate_default=True
    )

    @model_validator(mode="after")
    def _has_bf16(self) -> Self:
        if "bf16" not in self.peak_flops:
            message = f"peak_flops must name bf16, got {sorted(self.peak_flops)}"
            raise ValueError(message)
        return self

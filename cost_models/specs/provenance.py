"""Where measured figures are from: device, software, clocks, date, method, and how well each table repeated."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from cost_models.specs.base import (
    FloatByName,
    Name,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFloat,
    PositiveInt,
    Spec,
    frozen,
)

Date = Annotated[str, Field(pattern=r"^\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}Z$")]
MeasuredPart = Literal[
    "gemm",
    "grouped_gemm",
    "attention",
    "elementwise",
    "launch",
    "layers",
    "collectives",
    "collectives_across",
    "copies",
    "interference",
    "context",
    "communicator",
    "allocator",
    "host_memory",
]
"""What of a profile can be measured: its tables by field, and constants."""


class MeasuredTable(Spec):
    """How one part of a profile was measured: shapes, how far repetitions lie apart, what was left out."""

    label: ClassVar[str] = "measured table"

    points: PositiveInt = Field(description="shapes that were measured")
    repetitions: PositiveInt = Field(description="timed repetitions of a shape, median over shapes")
    spread: NonNegativeFloat = Field(
        description="distance of the upper and lower quartile of the repetitions over their median, median over shapes"
    )
    largest_spread: NonNegativeFloat = Field(description="the same, of the shape that repeats worst")
    outliers_dropped: NonNegativeInt = Field(0, description="repetitions that were left out as outliers")
    throttled: NonNegativeInt = Field(0, description="repetitions that were left out because clocks were lowered")
    fit_error: NonNegativeFloat | None = Field(
        None, description="mean |table / measured - 1| in seconds, of shapes that the fit did not see"
    )
    between_profiles: NonNegativeFloat | None = Field(
        None, description="half the range of merged profiles over their median, mean over nodes of the lattices"
    )


MeasuredTables = Annotated[Mapping[MeasuredPart, MeasuredTable], AfterValidator(frozen)]
Versions = Annotated[Mapping[str, Name], AfterValidator(frozen)]


class Provenance(Spec):
    """What was measured, with what, when and how. A part that `tables` does not name was not measured."""

    label: ClassVar[str] = "provenance"

    device: Name = Field(description="device as its driver names it")
    driver: Name = Field(description="version of the device's driver, or of the kernel where the device is the host")
    torch: Name = Field(description="version of PyTorch")
    versions: Versions = Field(
        default_factory=dict, description="other software by name: cuda, nccl, python", validate_default=True
    )
    clocks_hz: FloatByName = Field(
        default_factory=dict, description="clocks while it was measured, median, by name", validate_default=True
    )
    threads: PositiveInt | None = Field(None, description="threads of an operator, where the device is the host")
    date: Date = Field(description="when the measurement ended, UTC: 2026-01-31T12:00:00Z")
    method: Literal["quick", "full"] = Field(description="budget that was measured with")
    budget_s: PositiveFloat = Field(description="seconds that the measurement was given")
    duration_s: PositiveFloat = Field(description="seconds that it took")
    ranks: PositiveInt = Field(1, description="ranks that measured together")
    hosts: tuple[Name, ...] = Field((), description="hosts that were measured")
    notes: tuple[Name, ...] = Field((), description="what a reader has to know: what else ran, what was cut short")
    tables: MeasuredTables = Field(
        default_factory=dict, description="how each part was measured, by part", validate_default=True
    )

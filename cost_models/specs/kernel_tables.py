"""Measured shares of a GPU's peaks by the sizes of an operator, on lattices: what constants refine to."""

from collections.abc import Mapping
from math import log, prod
from typing import Annotated, ClassVar, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from cost_models.specs.base import Fraction, Name, PositiveFloat, Sources, Spec, frozen

Axis = Annotated[tuple[PositiveFloat, ...], Field(min_length=2)]
Shares = tuple[Fraction, ...]
Range = tuple[PositiveFloat, PositiveFloat]
RangeByName = Annotated[Mapping[Literal["streams", "keys", "head_dim"], Range], AfterValidator(frozen)]
AxisByName = Annotated[Mapping[str, Axis], AfterValidator(frozen)]
GemmLayout = Literal["forward", "input_grad", "weight_grad"]
Collective = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all"]
AttentionPass = Literal["forward", "backward"]
_ROUNDING = 1e-9


class ShareLattice(Spec):
    """Shares on a lattice of sizes, with the last axis fastest.

    A share may not rise faster than any size: more work would take less time.
    """

    label: ClassVar[str] = "lattice"

    axes: AxisByName = Field(description="rising nodes of each size, by its name")
    shares: Shares = Field(description="share of the peak at every node")

    @model_validator(mode="after")
    def _is_a_lattice(self) -> Self:
        nodes = prod(len(axis) for axis in self.axes.values())
        if len(self.shares) != nodes:
            message = f"shares must be {nodes}, one for each node of {list(self.axes)}, got {len(self.shares)}"
            raise ValueError(message)
        stride = nodes
        for name, axis in self.axes.items():
            stride //= len(axis)
            self._check_axis(name, axis, stride)
        return self

    def _check_axis(self, name: str, axis: tuple[float, ...], stride: int) -> None:
        """Raises ValueError unless the axis rises, and time along it."""
        steps = [log(after / before) for before, after in zip(axis, axis[1:], strict=False) if after > before]
        if len(steps) < len(axis) - 1:
            message = f"axes.{name} must rise, got {list(axis)}"
            raise ValueError(message)
        for index in range(len(self.shares) - stride):
            place = index // stride % len(axis)
            if place == len(axis) - 1:
                continue
            if log(self.shares[index + stride] / self.shares[index]) > steps[place] + _ROUNDING:
                message = f"shares must not rise faster than {name}, got {self.shares[index]} at {axis[place]:g}, then "
                raise ValueError(message + f"{self.shares[index + stride]}")


Layouts = Annotated[Mapping[GemmLayout, Fraction], AfterValidator(frozen)]


class GemmTable(ShareLattice):
    """Shares of the dense peak that isolated products reach, forward layout, by rows, columns and inner.

    Bytes and launch of the roofline are taken out. Only the shape is used: shares over `reference_share` times the
    constants' peak_fraction, which a long run's clocks and the other layouts are known for.
    """

    label: ClassVar[str] = "gemm table"

    reference_share: Fraction = Field(description="share at the shapes that training spends its time on")
    layouts: Layouts = Field(description="rate of each layout over the forward's")
    measured: tuple[GemmLayout, ...] = Field(description="layouts that were measured on this GPU")


class AttentionTable(ShareLattice):
    """Shares of the dense peak that causal attention reaches, by query rows of all heads, keys and head size.

    FLOPs as in AttentionRoofline; `shares` are the forward's, `backward_shares` count the backward's 2.5 times as many.
    """

    label: ClassVar[str] = "attention table"

    backward_shares: Shares = Field(description="as shares, of the backward")
    reference_share: Fraction = Field(description="peak_fraction of the constants that fit the same measurements")
    within: RangeByName = Field(description="first and last measured: streams (sequences x heads), keys, head_dim")
    measured: tuple[AttentionPass, ...] = Field(description="passes that were measured on this GPU")

    @model_validator(mode="after")
    def _backward_is_a_lattice(self) -> Self:
        ShareLattice(axes=self.axes, shares=self.backward_shares)
        return self


class GroupTable(ShareLattice):
    """What a product of many groups reaches of one product's rate, by rows of one group (tokens of an expert)."""

    label: ClassVar[str] = "group table"

    measured: bool = Field(description="whether the pass was measured on this GPU")

    @model_validator(mode="after")
    def _more_groups_take_longer(self) -> Self:
        if list(self.shares) != sorted(self.shares):
            message = f"shares must not fall with the rows of a group, got {list(self.shares)}"
            raise ValueError(message)
        return self


Operations = Annotated[Mapping[Collective, ShareLattice], AfterValidator(frozen)]


class CollectiveTables(Spec):
    """Shares of a link's line rate that collectives of one node reach, by ranks and bytes.

    Bytes are the whole tensor's, of an all-to-all those that a rank holds; (ranks - 1) / ranks of them pass.
    """

    label: ClassVar[str] = "collective tables"

    kind: Name = Field(description="kind of the tier: nvlink, pcie, network")
    line_rate_bytes_per_s: PositiveFloat = Field(description="line rate of the measured link, one direction")
    reference_share: Fraction = Field(description="share that the constants' link_fraction stands for")
    operations: Operations = Field(description="shares by operation")


GemmTables = Annotated[Mapping[str, GemmTable], AfterValidator(frozen)]
GroupTables = Annotated[Mapping[GemmLayout, GroupTable], AfterValidator(frozen)]


class KernelTables(Spec):
    """Measured tables of one GPU model; what is missing falls back to the roofline's constants."""

    label: ClassVar[str] = "tables"

    gpus: tuple[Name, ...] = Field(description="catalog names of the GPUs that the tables were measured on")
    gemm: GemmTables = Field(default_factory=dict, description="products, by data type", validate_default=True)
    grouped_gemm: GroupTables = Field(
        default_factory=dict, description="products of many groups, by layout", validate_default=True
    )
    attention: AttentionTable | None = Field(None, description="fused causal attention, bf16")
    collectives: CollectiveTables | None = Field(None, description="collectives inside a node")
    sources: Sources = Field(
        default_factory=dict, description="source and licence of every table, by field", validate_default=True
    )

"""Measured shares of a device's peaks by the sizes of an operator, on lattices: what constants refine to.

How a table is filled from measurements is said in specs/measured_profile.py.
"""

from collections.abc import Iterable, Mapping
from math import log, prod
from typing import Annotated, ClassVar, Literal, Self, get_args

from pydantic import AfterValidator, Field, model_validator

from cost_models.specs.base import Fraction, Name, PositiveFloat, Sources, Spec, frozen

Axis = Annotated[tuple[PositiveFloat, ...], Field(min_length=1)]
Shares = tuple[Fraction, ...]
ShareOfBandwidth = Annotated[float, Field(strict=True, gt=0, le=1000, allow_inf_nan=False)]
Range = tuple[PositiveFloat, PositiveFloat]
RangeByName = Annotated[Mapping[Literal["streams", "keys", "head_dim"], Range], AfterValidator(frozen)]
AxisByName = Annotated[Mapping[str, Axis], AfterValidator(frozen)]
GemmLayout = Literal["forward", "input_grad", "weight_grad"]
Collective = Literal["all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"]
CopyDirection = Literal["host_to_device", "device_to_host"]
AttentionPass = Literal["forward", "backward"]
ElementwiseKind = Literal[
    "norm_forward",
    "norm_backward",
    "activation_forward",
    "activation_backward",
    "rotary_forward",
    "rotary_backward",
    "residual_forward",
    "residual_backward",
    "loss_forward",
    "loss_backward",
    "embedding_forward",
    "embedding_backward",
    "parameter_copy",
    "gradient_copy",
    "gradient_accumulation",
    "optimizer_step",
    "other",
]
"""Memory-bound operators that are measured apart; `other` stands for every kind without a table of its own."""
_ROUNDING = 1e-9


def is_none(value: object) -> bool:
    """Whether an optional field says nothing, so that it is left out of files and digests."""
    return value is None


def is_empty(value: Mapping[str, object]) -> bool:
    """Whether a table of tables holds none, so that it is left out of files and digests."""
    return not value


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


def _check_sizes(lattice: ShareLattice, sizes: tuple[str, ...], field: str = "axes") -> None:
    """Raises ValueError unless the axes of a lattice are these sizes, in this order."""
    if tuple(lattice.axes) != sizes:
        message = f"{field} must be {', '.join(sizes)}, in this order, got {', '.join(lattice.axes) or 'none'}"
        raise ValueError(message)


def _check_named(given: Iterable[str], wanted: tuple[str, ...], field: str) -> None:
    """Raises ValueError unless a table names all of these."""
    given = list(given)
    if set(wanted) - set(given):
        message = f"{field} must name {', '.join(wanted)}, got {', '.join(given) or 'none'}"
        raise ValueError(message)


PRODUCT_SIZES = ("rows", "columns", "inner")
Layouts = Annotated[Mapping[GemmLayout, Fraction], AfterValidator(frozen)]
LatticeByLayout = Annotated[Mapping[GemmLayout, ShareLattice], AfterValidator(frozen)]


class GemmTable(ShareLattice):
    """Shares of the dense peak that isolated products reach, forward layout, by rows, columns and inner.

    Bytes and launch of the roofline are taken out. Only the shape is used: shares over `reference_share` times the
    constants' peak_fraction, which a long run's clocks and the other layouts are known for. A layout with a lattice of
    its own in `by_layout`, by its own rows, columns and inner, takes its shares from there; others from the forward's.
    """

    label: ClassVar[str] = "gemm table"

    reference_share: Fraction = Field(description="share at the shapes that training spends its time on")
    layouts: Layouts = Field(description="rate of each layout over the forward's; 1 where it has its own lattice")
    by_layout: LatticeByLayout = Field(
        default_factory=dict,
        description="lattices of layouts that were measured by themselves",
        validate_default=True,
        exclude_if=is_empty,
    )
    measured: tuple[GemmLayout, ...] = Field(description="layouts that were measured on this GPU")

    @model_validator(mode="after")
    def _is_of_products(self) -> Self:
        _check_sizes(self, PRODUCT_SIZES)
        _check_named(self.layouts, get_args(GemmLayout), "layouts")
        if "forward" in self.by_layout:
            message = "by_layout must not name forward: its shares are those of the table itself"
            raise ValueError(message)
        for layout, lattice in self.by_layout.items():
            _check_sizes(lattice, PRODUCT_SIZES, f"by_layout.{layout}.axes")
        return self


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
    def _is_of_attention(self) -> Self:
        _check_sizes(self, ("rows", "keys", "head_dim"))
        _check_named(self.within, ("streams", "keys", "head_dim"), "within")
        ShareLattice(axes=self.axes, shares=self.backward_shares)
        return self


class GroupTable(ShareLattice):
    """What a product of many groups reaches of one product's rate, by rows of one group (tokens of an expert)."""

    label: ClassVar[str] = "group table"

    measured: bool = Field(description="whether the pass was measured on this GPU")

    @model_validator(mode="after")
    def _more_groups_take_longer(self) -> Self:
        _check_sizes(self, ("rows",))
        if list(self.shares) != sorted(self.shares):
            message = f"shares must not fall with the rows of a group, got {list(self.shares)}"
            raise ValueError(message)
        return self


class ElementwiseTable(ShareLattice):
    """Shares of the memory bandwidth that one kind of memory-bound operator reaches, by the bytes it is counted with.

    They include the kernel's fixed time, and are above 1 where caches or fusion move less than is counted.
    """

    label: ClassVar[str] = "elementwise table"

    shares: tuple[ShareOfBandwidth, ...] = Field(description="counted bytes over seconds, over the memory bandwidth")

    @model_validator(mode="after")
    def _is_of_bytes(self) -> Self:
        _check_sizes(self, ("bytes",))
        return self


CopyByDirection = Annotated[Mapping[CopyDirection, ShareLattice], AfterValidator(frozen)]


class CopyTables(Spec):
    """Shares of a line rate that pinned copies between host and device reach, by bytes of one copy."""

    label: ClassVar[str] = "copy tables"

    line_rate_bytes_per_s: PositiveFloat = Field(description="line rate of the host link, one direction")
    directions: CopyByDirection = Field(description="shares by direction, copies of one device at a time")

    @model_validator(mode="after")
    def _are_of_bytes(self) -> Self:
        for direction, lattice in self.directions.items():
            _check_sizes(lattice, ("bytes",), f"directions.{direction}.axes")
        return self


Operations = Annotated[Mapping[Collective, ShareLattice], AfterValidator(frozen)]


class CollectiveTables(Spec):
    """Shares of a link's line rate that collectives reach, by ranks and bytes; fixed times are in them.

    Bytes are the whole tensor's, of an all-to-all those that a rank holds; (ranks - 1) / ranks of them pass. Of `send`,
    from one rank to another, all bytes pass, whatever the ranks.
    """

    label: ClassVar[str] = "collective tables"

    kind: Name = Field(description="kind of the tier: nvlink, pcie, network")
    line_rate_bytes_per_s: PositiveFloat = Field(description="line rate of the measured link, one direction")
    reference_share: Fraction = Field(description="share that the constants' link_fraction stands for")
    operations: Operations = Field(description="shares by operation")

    @model_validator(mode="after")
    def _are_of_ranks_and_bytes(self) -> Self:
        for operation, lattice in self.operations.items():
            _check_sizes(lattice, ("ranks", "bytes"), f"operations.{operation}.axes")
        return self


ElementwiseTables = Annotated[Mapping[ElementwiseKind, ElementwiseTable], AfterValidator(frozen)]
GemmTables = Annotated[Mapping[str, GemmTable], AfterValidator(frozen)]
GroupTables = Annotated[Mapping[GemmLayout, GroupTable], AfterValidator(frozen)]


class KernelTables(Spec):
    """Measured tables of one device; what is missing falls back to the roofline's constants."""

    label: ClassVar[str] = "tables"

    gpus: tuple[Name, ...] = Field(description="catalog names of the GPUs that the tables were measured on")
    gemm: GemmTables = Field(default_factory=dict, description="products, by data type", validate_default=True)
    grouped_gemm: GroupTables = Field(
        default_factory=dict, description="products of many groups, by layout", validate_default=True
    )
    attention: AttentionTable | None = Field(None, description="fused causal attention, bf16")
    elementwise: ElementwiseTables = Field(
        default_factory=dict,
        description="memory-bound operators, by kind",
        validate_default=True,
        exclude_if=is_empty,
    )
    collectives: CollectiveTables | None = Field(None, description="collectives inside the innermost tier")
    collectives_across: CollectiveTables | None = Field(
        None, description="collectives of one rank in each domain of the innermost tier", exclude_if=is_none
    )
    copies: CopyTables | None = Field(None, description="copies between host and device", exclude_if=is_none)
    sources: Sources = Field(
        default_factory=dict, description="source and licence of every table, by field", validate_default=True
    )

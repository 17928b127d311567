"""The tables of a profile as rates in SI units, whatever shares and constants they are kept in: to show and compare.

A rate is what a kernel or link reaches beside its fixed time, as `kernels` and `links` use it: FLOP/s of products and
attention, bytes/s of memory-bound work, collectives and copies; of grouped products a share of one product's rate.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.interpolation import LogLattice
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.kernel_tables import CollectiveTables, KernelTables, ShareLattice
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.provenance import MeasuredPart

__all__ = ["RateTable", "rate_tables"]

Array = NDArray[np.float64]
FLOPS, BYTES, SHARE = "FLOP/s", "B/s", "of one product"


@dataclass(frozen=True, eq=False)
class RateTable:
    """One lattice: rates float[len(axis) for each axis] = `scale` * shares.

    `path` is where the lattice stands in a dump of KernelTables, `field` the name of its shares there. `part` says by
    what name its measurement goes.
    """

    part: MeasuredPart
    name: str
    unit: str
    axes: Mapping[str, tuple[float, ...]]
    rates: Array
    scale: float
    path: tuple[str, ...]
    field: str = "shares"

    @property
    def nodes(self) -> Array:
        """Sizes of every node, float[nodes, axes], in the order of the flat rates."""
        return np.stack([each.ravel() for each in np.meshgrid(*self.axes.values(), indexing="ij")], axis=1)

    def at(self, sizes: Array) -> Array:
        """Rates at some sizes, float[points, axes] -> float[points]."""
        return LogLattice(tuple(self.axes.values()), self.rates)(*sizes.T)

    def covers(self, sizes: Array) -> NDArray[np.bool_]:
        """Whether sizes lie between the first and the last node of every axis, bool[points]."""
        first, last = (np.array([axis[end] for axis in self.axes.values()]) for end in (0, -1))
        return np.asarray(((sizes >= first) & (sizes <= last)).all(axis=1))


def rate_tables(gpu: GpuSpec, profile: HardwareProfile) -> dict[str, RateTable]:
    """Every lattice of a profile's tables, by name; nothing where it has none."""
    tables = profile.tables
    if tables is None:
        return {}
    found = (*_products(gpu, profile, tables), *_attention(gpu, profile, tables), *_moved(gpu, tables))
    return {table.name: table for table in (*found, *_links(profile, tables))}


def _products(gpu: GpuSpec, profile: HardwareProfile, tables: KernelTables) -> Iterator[RateTable]:
    for dtype, table in tables.gemm.items():
        reached = gpu.peak_flops[dtype] * profile.gemm[dtype].peak_fraction * profile.sustained_fraction
        scale, path = reached / table.reference_share, ("gemm", dtype)
        yield _table("gemm", f"gemm {dtype} forward", FLOPS, table, table.layouts["forward"] * scale, path)
        for layout, lattice in table.by_layout.items():
            yield _table("gemm", f"gemm {dtype} {layout}", FLOPS, lattice, scale, (*path, "by_layout", layout))
    for layout, groups in tables.grouped_gemm.items():
        yield _table("grouped_gemm", f"grouped gemm {layout}", SHARE, groups, 1.0, ("grouped_gemm", layout))


def _attention(gpu: GpuSpec, profile: HardwareProfile, tables: KernelTables) -> Iterator[RateTable]:
    table = tables.attention
    if table is not None:
        reached = gpu.peak_flops["bf16"] * profile.attention.peak_fraction * profile.sustained_fraction
        scale, path = reached / table.reference_share, ("attention",)
        yield _table("attention", "attention forward", FLOPS, table, scale, path)
        yield _table("attention", "attention backward", FLOPS, table, scale, path, "backward_shares")


def _moved(gpu: GpuSpec, tables: KernelTables) -> Iterator[RateTable]:
    bandwidth = gpu.memory_bandwidth_bytes_per_s
    for kind, table in tables.elementwise.items():
        name = "other elementwise" if kind == "other" else kind
        yield _table("elementwise", name, BYTES, table, bandwidth, ("elementwise", kind))
    copies = tables.copies
    for direction, lattice in copies.directions.items() if copies else ():
        assert copies is not None
        rate, path = copies.line_rate_bytes_per_s, ("copies", "directions", direction)
        yield _table("copies", f"copy {direction}", BYTES, lattice, rate, path)


def _links(profile: HardwareProfile, tables: KernelTables) -> Iterator[RateTable]:
    places: tuple[tuple[MeasuredPart, str, CollectiveTables | None], ...] = (
        ("collectives", "", tables.collectives),
        ("collectives_across", " across", tables.collectives_across),
    )
    for part, where, table in places:
        if table is None:
            continue
        scale = table.line_rate_bytes_per_s * profile.link_fraction[table.kind] / table.reference_share
        for operation, lattice in table.operations.items():
            yield _table(part, f"{operation}{where}", BYTES, lattice, scale, (part, "operations", operation))


def _table(
    part: MeasuredPart,
    name: str,
    unit: str,
    lattice: ShareLattice,
    scale: float,
    path: tuple[str, ...],
    field: str = "shares",
) -> RateTable:
    shape = [len(axis) for axis in lattice.axes.values()]
    shares: Any = np.asarray(getattr(lattice, field), dtype=np.float64)
    return RateTable(part, name, unit, lattice.axes, scale * shares.reshape(shape), scale, path, field)

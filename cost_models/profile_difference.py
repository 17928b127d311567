"""How two measured profiles differ: rates at the sizes that both cover, and constants."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cost_models.rate_tables import RateTable, rate_tables
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.measured_profile import MeasuredProfile

__all__ = ["ConstantDifference", "Difference", "TableDifference", "difference"]

ALIKE = 1e-9


@dataclass(frozen=True)
class Largest:
    """The size at which two tables differ most: `longer` is the second's time over the first's, less 1."""

    sizes: Mapping[str, float]
    first: float
    second: float
    longer: float


@dataclass(frozen=True)
class TableDifference:
    """Two tables of one operator, at the nodes of both that both cover.

    Times are the second's over the first's, less 1; `mean_apart` is the mean of how far they are from equal either way.

    `largest` are the sizes that differ most, the most first; none where the two cover nothing together.
    """

    name: str
    unit: str
    points: int
    median_longer: float
    mean_apart: float
    largest: tuple[Largest, ...]


@dataclass(frozen=True)
class ConstantDifference:
    """A figure that is not in a table, None where a profile does not have it."""

    name: str
    first: float | None
    second: float | None

    @property
    def change(self) -> float | None:
        """The second over the first, less 1; None where one is missing or the first is nothing."""
        return None if not self.first or self.second is None else self.second / self.first - 1.0


@dataclass(frozen=True)
class Difference:
    """How a second profile differs from a first. Tables come with the most different first; constants that differ."""

    tables: tuple[TableDifference, ...]
    constants: tuple[ConstantDifference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]
    same_device: bool


def difference(first: MeasuredProfile, second: MeasuredProfile, most: int = 3) -> Difference:
    """How the second differs from the first; of each table the `most` different sizes."""
    before, after = (rate_tables(each.cluster.gpu, each.profile) for each in (first, second))
    tables = [_compared(before[name], after[name], most) for name in before if name in after]
    tables.sort(key=lambda each: (-each.mean_apart, each.name))
    figures, others = constants(first), constants(second)
    pairs = [ConstantDifference(name, figures.get(name), others.get(name)) for name in {**figures, **others}]
    return Difference(
        tables=tuple(tables),
        constants=tuple(pair for pair in pairs if pair.first != pair.second),
        only_first=tuple(name for name in before if name not in after),
        only_second=tuple(name for name in after if name not in before),
        same_device=first.cluster.gpu.name == second.cluster.gpu.name,
    )


def constants(measured: MeasuredProfile) -> dict[str, float]:
    """The figures of a profile that stand in no table, by name; SI units."""
    profile, cluster = measured.profile, measured.cluster
    gpu, slowdowns = cluster.gpu, profile.slowdowns
    figures: dict[str, float | None] = {
        **{f"peak_flops.{dtype}": peak for dtype, peak in gpu.peak_flops.items()},
        "memory_bandwidth_bytes_per_s": gpu.memory_bandwidth_bytes_per_s,
        "usable_memory_bytes": gpu.usable_memory_bytes,
        **{f"gemm.{dtype}.launch_s": roofline.launch_s for dtype, roofline in profile.gemm.items()},
        "elementwise.launch_s": profile.elementwise.launch_s,
        "host_launch_s": profile.host_launch_s,
        **_in_run("beyond", profile.beyond),
        **_in_run("beyond_shared", profile.beyond_shared),
        "hop_end_s": profile.hop_end_s,
        "hop_end_token_s": profile.hop_end_token_s,
        "sustained_fraction": profile.sustained_fraction,
        "collective_base_latency_s": profile.collective_base_latency_s,
        "context_bytes": profile.context_bytes,
        "communicator_bytes": profile.communicator_bytes,
        "fragmentation_fraction": profile.fragmentation_fraction,
        "host_memory_bandwidth_bytes_per_s": cluster.host_memory_bandwidth_bytes_per_s,
        "host_to_device_bandwidth_bytes_per_s": cluster.host_to_device_bandwidth_bytes_per_s,
    }
    for streams, factors in (slowdowns.factors if slowdowns else {}).items():
        figures |= {f"slowdown {streams} of {stream}": factor for stream, factor in factors.items()}
    return {name: float(figure) for name, figure in figures.items() if figure is not None}


def _in_run(kind: str, found: BeyondOperators | None) -> dict[str, float]:
    return {} if found is None else {f"{kind}.{name}": value for name, value in found.model_dump().items()}


def _compared(first: RateTable, second: RateTable, most: int) -> TableDifference:
    if tuple(first.axes) == tuple(second.axes):
        sizes = np.unique(np.concatenate([first.nodes, second.nodes]), axis=0)
        sizes = sizes[first.covers(sizes) & second.covers(sizes)]
    else:
        sizes = np.empty((0, len(first.axes)))
    if not len(sizes):
        return TableDifference(first.name, first.unit, 0, 0.0, 0.0, ())
    rates = first.at(sizes), second.at(sizes)
    longer = rates[0] / rates[1] - 1.0
    apart = np.round(np.abs(np.log1p(longer)), 9)  # what differs by rounding comes in the order of the sizes
    order = [index for index in np.argsort(-apart, kind="stable")[:most].tolist() if apart[index] > ALIKE]
    largest = tuple(
        Largest(
            sizes=dict(zip(first.axes, sizes[index].tolist(), strict=True)),
            first=float(rates[0][index]),
            second=float(rates[1][index]),
            longer=float(longer[index]),
        )
        for index in order
    )
    mean_apart = float(np.expm1(apart.mean()))
    return TableDifference(first.name, first.unit, len(sizes), float(np.median(longer)), mean_apart, largest)

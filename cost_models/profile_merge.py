"""One profile of several nodes of one kind of device: medians of rates and constants, and how far they lie apart.

Medians of tables over the same sizes keep what every lattice obeys: where no node's time falls, their median's does
not. Tables over other sizes are read at the sizes of the first profile, by those profiles that cover them.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models import surface
from cost_models.interference import raised
from cost_models.rate_tables import RateTable, rate_tables
from cost_models.specs.beyond import BeyondOperators
from cost_models.specs.errors import SpecError
from cost_models.specs.measured_profile import MeasuredProfile
from cost_models.specs.provenance import MeasuredPart, MeasuredTable, Provenance

__all__ = ["Merged", "TableSpread", "merged"]

Array = NDArray[np.float64]
# Constants by the part that measures them; the path leads through the dump of a MeasuredProfile.
CONSTANTS: dict[MeasuredPart, tuple[tuple[str, ...], ...]] = {
    "launch": (("profile", "host_launch_s"),),
    "layers": (
        *(("profile", kind, name) for kind in ("beyond", "beyond_shared") for name in BeyondOperators.model_fields),
        ("profile", "hop_end_s"),
        ("profile", "hop_end_token_s"),
    ),
    "context": (("profile", "context_bytes"),),
    "communicator": (("profile", "communicator_bytes"),),
    "allocator": (("profile", "fragmentation_fraction"),),
    "host_memory": (("cluster", "host_memory_bandwidth_bytes_per_s"),),
    "copies": (("cluster", "host_to_device_bandwidth_bytes_per_s"),),
}
# Memories of one kind of device differ by what their drivers hold back.
SAME_MEMORY = 0.05
LONGEST_NAME = 200


@dataclass(frozen=True)
class TableSpread:
    """How far the rates of one operator lie apart: half the range over the median, mean and largest over its sizes."""

    name: str
    profiles: int
    mean: float
    largest: float


@dataclass(frozen=True)
class Merged:
    """The profile of several, and the spread of each table."""

    measured: MeasuredProfile
    spreads: tuple[TableSpread, ...]


def merged(profiles: Sequence[MeasuredProfile], names: Sequence[str]) -> Merged:
    """The median of some profiles; `names` are what to call them in messages, their files.

    Raises SpecError for fewer than two, and for profiles of devices that are not alike.
    """
    if len(profiles) < 2:
        message = f"merging takes two profiles at least, got {len(profiles)}"
        raise SpecError(message)
    for other, name in zip(profiles[1:], names[1:], strict=True):
        _check_alike(profiles[0], names[0], other, name)
    data = _united(profiles)
    whole = MeasuredProfile.model_validate(data)
    scales = {name: table.scale for name, table in rate_tables(whole.cluster.gpu, whole.profile).items()}
    rates = [rate_tables(each.cluster.gpu, each.profile) for each in profiles]
    spreads: list[tuple[MeasuredPart, TableSpread]] = []
    for name, scale in scales.items():
        found = [tables[name] for tables in rates if name in tables]
        spreads.append((found[0].part, _put_median(data["profile"]["tables"], found, scale)))
    _put_constants(data, profiles)
    _put_slowdowns(data, profiles)
    data["profile"]["name"] = f"{profiles[0].profile.name}-of-{len(profiles)}"
    data["profile"]["provenance"] = _provenance(profiles, spreads).model_dump(mode="json")
    return Merged(MeasuredProfile.model_validate(data), tuple(spread for _, spread in spreads))


def _check_alike(first: MeasuredProfile, first_name: str, other: MeasuredProfile, name: str) -> None:
    """Raises SpecError unless two profiles are of one kind of device, joined by the same kinds of links."""
    pairs = {
        "device": [each.cluster.gpu.name for each in (first, other)],
        "data types": [", ".join(sorted(each.profile.gemm)) for each in (first, other)],
        "links": [", ".join(tier.kind for tier in each.cluster.tiers) for each in (first, other)],
        "devices on a host": [str(each.cluster.gpus_per_node) for each in (first, other)],
    }
    for what, (one, two) in pairs.items():
        if one != two:
            message = f"profiles of unlike devices cannot be merged: {what} of {first_name}: {one}, of {name}: {two}"
            raise SpecError(message)
    one_bytes, two_bytes = (each.cluster.gpu.usable_memory_bytes for each in (first, other))
    if abs(two_bytes / one_bytes - 1) > SAME_MEMORY:
        message = (
            f"profiles of unlike devices cannot be merged: {first_name} has {one_bytes:,} bytes of usable memory, "
            f"{name} {two_bytes:,}"
        )
        raise SpecError(message)


def _united(profiles: Sequence[MeasuredProfile]) -> dict[str, Any]:
    """The dump of the first profile with the tables that only others have, on the fastest device of all.

    Rates are shares of the device's, so that none may be above it.
    """
    data: dict[str, Any] = profiles[0].model_dump(mode="json")
    for other in profiles[1:]:
        _fill(data["profile"], other.profile.model_dump(mode="json", include={"tables", "slowdowns"}))
    gpu, others = data["cluster"]["gpu"], [each.cluster.gpu for each in profiles]
    gpu["peak_flops"] = {dtype: max(other.peak_flops[dtype] for other in others) for dtype in gpu["peak_flops"]}
    gpu["memory_bandwidth_bytes_per_s"] = max(other.memory_bandwidth_bytes_per_s for other in others)
    gpu["usable_memory_bytes"] = min(other.usable_memory_bytes for other in others)
    return data


def _fill(into: dict[str, Any], other: dict[str, Any]) -> None:
    """Adds what only the other has, tables within tables."""
    for name, value in other.items():
        if into.get(name) is None:
            into[name] = value
        elif isinstance(value, dict):
            _fill(into[name], value)
        elif name == "measured" and isinstance(value, list):
            into[name] = [*into[name], *(each for each in value if each not in into[name])]


def _put_median(tables: dict[str, Any], found: Sequence[RateTable], scale: float) -> TableSpread:
    """Writes the median rates of one operator as shares of `scale`; how far they lie apart."""
    first = found[0]
    rates = np.stack([_read_at(each, first) for each in found])
    middle = np.nanmedian(rates, axis=0)
    shares = middle / scale
    if first.part != "elementwise":  # caches may beat the memory's bandwidth; nothing beats a peak but by rounding
        shares = np.minimum(shares, 1.0)
    shape = [len(axis) for axis in first.axes.values()]
    if any(each.axes != first.axes for each in found):
        axes = [np.asarray(axis) for axis in first.axes.values()]
        shares = surface.monotone(axes, shares.reshape(shape))
    where = tables
    for step in first.path:
        where = where[step]
    where["axes"] = {name: list(axis) for name, axis in first.axes.items()}
    where[first.field] = [_rounded(share) for share in shares.ravel().tolist()]
    apart = (np.nanmax(rates, axis=0) - np.nanmin(rates, axis=0)) / 2 / middle
    return TableSpread(first.name, len(found), float(apart.mean()), float(apart.max()))


def _read_at(table: RateTable, first: RateTable) -> Array:
    """Rates of a table at the nodes of the first, flat; nan where it does not cover them."""
    if table.axes == first.axes:
        return table.rates.ravel()
    nodes = first.nodes
    return np.where(table.covers(nodes), table.at(nodes), np.nan)


def _put_constants(data: dict[str, Any], profiles: Sequence[MeasuredProfile]) -> None:
    """Writes the median of every constant, over the profiles that measured it."""
    dumps = [each.model_dump(mode="json") for each in profiles]
    for part, paths in CONSTANTS.items():
        measured = [dump for dump, each in zip(dumps, profiles, strict=True) if each.profile.is_measured(part)]
        for *parents, last in paths:
            figures = [figure for dump in measured if (figure := _within(dump, parents).get(last)) is not None]
            if figures:
                whole = all(isinstance(figure, int) for figure in figures)
                _within(data, parents)[last] = round(median(figures)) if whole else _rounded(median(figures))


def _rounded(figure: float) -> float:
    """The figure without what rounding left at its end; no coarser, or less work could take less time."""
    return float(f"{figure:.12g}")


def _within(data: dict[str, Any], steps: Sequence[str]) -> dict[str, Any]:
    for step in steps:
        data = data.setdefault(step, {})  # a group of constants that some of the profiles lack
    return data


def _put_slowdowns(data: dict[str, Any], profiles: Sequence[MeasuredProfile]) -> None:
    """Writes the median of every factor, over the profiles that measured interference."""
    measured = [each.profile.slowdowns for each in profiles if each.profile.is_measured("interference")]
    known = [slowdowns.factors for slowdowns in measured if slowdowns is not None]
    if not known:
        return
    factors = {
        name: {
            stream: median(each[name][stream] for each in known if name in each)
            for stream in next(each[name] for each in known if name in each)
        }
        for name in dict.fromkeys(name for each in known for name in each)
    }
    possible = raised(factors)  # a set that nobody gave stays the worst of its subsets, which is possible
    data["profile"]["slowdowns"]["factors"] = {name: possible[name] for name in factors}
    pair = factors.get("compute+collective")
    if pair is not None:
        data["profile"]["overlap"] = {
            "compute_slowdown": pair["compute"],
            "communication_slowdown": pair["collective"],
        }


def _provenance(profiles: Sequence[MeasuredProfile], spreads: Sequence[tuple[MeasuredPart, TableSpread]]) -> Provenance:
    """Where the merged figures are from: what all say alike, the latest date, every host."""
    each = [profile.profile.provenance for profile in profiles if profile.profile.provenance is not None]
    parts = dict.fromkeys(part for provenance in each for part in provenance.tables)
    apart = {part: [spread.mean for where, spread in spreads if where == part] for part in parts}
    return each[0].replaced(
        driver=_all_said(provenance.driver for provenance in each),
        torch=_all_said(provenance.torch for provenance in each),
        clocks_hz={name: median(p.clocks_hz[name] for p in each if name in p.clocks_hz) for name in each[0].clocks_hz},
        date=max(provenance.date for provenance in each),
        method="full" if all(provenance.method == "full" for provenance in each) else "quick",
        duration_s=max(provenance.duration_s for provenance in each),
        hosts=tuple(dict.fromkeys(host for provenance in each for host in provenance.hosts)),
        notes=tuple(dict.fromkeys((f"median of {len(each)} profiles", *(n for p in each for n in p.notes)))),
        tables={part: _table([p.tables[part] for p in each if part in p.tables], apart[part]) for part in parts},
    )


def _all_said(texts: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(texts))[:LONGEST_NAME]


def _table(tables: Sequence[MeasuredTable], apart: Sequence[float]) -> MeasuredTable:
    errors = [table.fit_error for table in tables if table.fit_error is not None]
    return MeasuredTable(
        points=max(table.points for table in tables),
        repetitions=sum(table.repetitions for table in tables),
        spread=median(table.spread for table in tables),
        largest_spread=max(table.largest_spread for table in tables),
        outliers_dropped=sum(table.outliers_dropped for table in tables),
        throttled=sum(table.throttled for table in tables),
        fit_error=max(errors) if errors else None,
        between_profiles=float(np.mean(apart)) if apart else None,
    )

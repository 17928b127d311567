"""Measured profiles for the terminal: what one says, how two differ, how far several lie apart."""

from collections.abc import Mapping, Sequence

import numpy as np
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from cost_models.profile_difference import Difference, TableDifference, constants
from cost_models.profile_merge import TableSpread
from cost_models.rate_tables import RateTable, rate_tables
from cost_models.specs.measured_profile import MeasuredProfile
from cost_models.specs.provenance import MeasuredPart, MeasuredTable
from cost_models.specs.units import format_bytes
from planner.report.quantities import digits, duration, percent, words
from planner.report.sections import body, heading, plain_table

__all__ = ["difference_report", "merge_report", "profile_report"]

UNITS = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"), (1.0, ""))
SIZE_LETTERS = {"rows": "m", "columns": "n", "inner": "k", "keys": "keys", "head_dim": "dim"}


def profile_report(measured: MeasuredProfile) -> RenderableType:
    """Where the profile is from, its constants, how each part was measured, and what every table says."""
    profile, gpu = measured.profile, measured.cluster.gpu
    provenance = profile.provenance
    assert provenance is not None  # MeasuredProfile sees to it
    software = ", ".join(f"{name} {version}" for name, version in provenance.versions.items())
    clocks = ", ".join(f"{name} {digits(hertz / 1e6)} MHz" for name, hertz in provenance.clocks_hz.items())
    facts = {
        "device": f"{gpu.name}: {provenance.device}, {format_bytes(gpu.usable_memory_bytes)} usable",
        "peaks": ", ".join(f"{rate(peak, 'FLOP/s')} {dtype}" for dtype, peak in gpu.peak_flops.items())
        + f", memory {rate(gpu.memory_bandwidth_bytes_per_s, 'B/s')}",
        "measured": f"{provenance.date}, {provenance.method}, {duration(provenance.duration_s)} of "
        f"{duration(provenance.budget_s)}, {provenance.ranks} rank{'s' * (provenance.ranks > 1)}"
        + (f" on {', '.join(provenance.hosts)}" if provenance.hosts else ""),
        "software": f"torch {provenance.torch}, driver {provenance.driver}" + (f", {software}" if software else ""),
        "clocks": clocks or "not read",
        **({"threads": str(provenance.threads)} if provenance.threads else {}),
        **({"notes": "; ".join(provenance.notes)} if provenance.notes else {}),
    }
    tables = rate_tables(gpu, profile)
    return Group(
        Text(profile.name, style="bold"),
        body(_pairs(facts)),
        heading("How it was measured"),
        body(_parts(provenance.tables)),
        *([heading("What operators reach"), body(_rates(tables))] if tables else []),
        heading("Constants"),
        body(_pairs({name: _constant(name, figure) for name, figure in constants(measured).items()})),
    )


def difference_report(difference: Difference, first: MeasuredProfile, second: MeasuredProfile) -> RenderableType:
    """The tables that differ most first, with the sizes that differ most, and the constants that differ."""
    names = [each.profile.name for each in (first, second)]
    sections: list[RenderableType] = [
        Text(f"{names[1]} against {names[0]}: longer where it takes more time", style="bold")
    ]
    if not difference.same_device:
        devices = [each.cluster.gpu.name for each in (first, second)]
        sections.append(body(Text(f"They are of different devices: {devices[0]} and {devices[1]}.")))
    for only, name in zip((difference.only_first, difference.only_second), names, strict=True):
        if only:
            sections.append(body(Text(f"Only in {name}: {', '.join(only)}.")))
    other = [each for each in difference.tables if each.largest]
    if other:
        sections += [heading("Tables that differ, the most different first"), body(_summary(other))]
        sections += [heading("Where they differ most"), body(_largest(other))]
    same = [words(each.name) for each in difference.tables if each.points and not each.largest]
    if same:
        sections.append(body(Text(f"The same in both: {', '.join(same)}.")))
    apart = [words(each.name) for each in difference.tables if not each.points]
    if apart:
        sections.append(body(Text(f"Over sizes that have nothing in common: {', '.join(apart)}.")))
    if difference.constants:
        table = plain_table("constant", right=("was", "is", "change"))
        for pair in difference.constants:
            was, now = ("-" if each is None else _constant(pair.name, each) for each in (pair.first, pair.second))
            table.add_row(pair.name, was, now, "" if pair.change is None else _signed(pair.change))
        sections += [heading("Constants that differ"), body(table)]
    if not difference.constants and not other:
        sections.append(body(Text("Nothing differs in what both have.")))
    return Group(*sections)


def merge_report(spreads: Sequence[TableSpread]) -> RenderableType:
    """How far the merged profiles lie apart, by table."""
    table = plain_table("operator", right=("profiles", "mean", "largest"))
    for each in spreads:
        table.add_row(each.name, str(each.profiles), percent(each.mean), percent(each.largest))
    return Group(Text("Half the range of the rates over their median:"), table)


def rate(figure: float, unit: str) -> str:
    """A rate with four digits and its unit: `12.34 GB/s`; a share stays one."""
    if "/" not in unit:
        return digits(figure)
    size, letter = next(((size, letter) for size, letter in UNITS if figure >= size), UNITS[-1])
    return f"{digits(figure / size)} {letter}{unit}"


def sizes_text(sizes: Mapping[str, float]) -> str:
    """Sizes as a list: `m 4,096, n 512, k 64`."""
    return ", ".join(
        f"{SIZE_LETTERS.get(name, name)} {_size(value) if name == 'bytes' else f'{value:,.6g}'}"
        for name, value in sizes.items()
    ).replace("bytes ", "")


def _size(size_bytes: float) -> str:
    return format_bytes(int(size_bytes)) if size_bytes >= 1024 else f"{size_bytes:g} B"


def _parts(tables: Mapping[MeasuredPart, MeasuredTable]) -> Table:
    merged = any(each.between_profiles is not None for each in tables.values())
    right = ("sizes", "repeated", "spread", "worst", "outliers", "throttled", "fit")
    table = plain_table("part", right=(*right, *(("between",) if merged else ())))
    for name, each in tables.items():
        figures = (f"{each.points:,}", f"{each.repetitions:,}", percent(each.spread), percent(each.largest_spread))
        left_out = (f"{each.outliers_dropped:,}", f"{each.throttled:,}", _optional(each.fit_error))
        between = (_optional(each.between_profiles),) if merged else ()
        table.add_row(words(name), *figures, *left_out, *between)
    table.caption = "spread: between quartiles, over the median; fit: error of the table at sizes it did not see"
    table.caption_justify = "left"
    return table


def _optional(fraction: float | None) -> str:
    return "" if fraction is None else percent(fraction)


def _rates(tables: Mapping[str, RateTable]) -> Table:
    """Least, median and most of every table, and where the most is."""
    table = plain_table("operator", "most at", right=("sizes", "least", "median", "most"))
    for each in tables.values():
        flat = each.rates.ravel()
        best = dict(zip(each.axes, each.nodes[int(np.argmax(flat))].tolist(), strict=True))
        figures = (rate(float(figure), each.unit) for figure in (flat.min(), np.median(flat), flat.max()))
        table.add_row(words(each.name), sizes_text(best), str(len(flat)), *figures)
    return table


def _summary(tables: Sequence[TableDifference]) -> Table:
    table = plain_table("operator", right=("sizes", "apart", "median longer"))
    for each in tables:
        table.add_row(words(each.name), str(each.points), percent(each.mean_apart), _signed(each.median_longer))
    return table


def _largest(tables: Sequence[TableDifference]) -> Table:
    table = plain_table("operator", "at", right=("longer", "was", "is"))
    for each in tables:
        for index, one in enumerate(each.largest):
            rates = (rate(figure, each.unit) for figure in (one.first, one.second))
            name = "" if index else words(each.name)
            table.add_row(name, sizes_text(one.sizes), _signed(one.longer), *rates)
    return table


def _signed(fraction: float) -> str:
    return f"{100 * fraction:+.1f} %"


def _constant(name: str, figure: float) -> str:
    """A figure with the unit that its name ends in."""
    if name.endswith("_bytes_per_s"):
        return rate(figure, "B/s")
    if name.startswith("peak_flops"):
        return rate(figure, "FLOP/s")
    if name.endswith("_bytes"):
        return _size(figure)
    return duration(figure) if name.endswith("_s") else f"{figure:.4g}"


def _pairs(facts: Mapping[str, str]) -> Table:
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(no_wrap=True, style="dim")
    for name, fact in facts.items():
        table.add_row(name, fact)
    return table

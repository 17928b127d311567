"""Days, money and energy of a run for the terminal."""

from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.economics import Economics, Economy
from planner.report.quantities import GIB, digits, duration, percent

__all__ = ["assumed", "days", "dollars", "economics_report"]


def days(value: float | None) -> str:
    """Days with three digits; empty for None."""
    return "" if value is None else f"{value:,.{0 if value >= 99.5 else 1 if value >= 9.95 else 2}f}"


def dollars(value: float | None, unit: float = 1.0) -> str:
    """An amount in some unit with four digits; empty for None."""
    return "" if value is None else digits(value / unit)


def economics_report(found: Economics, economy: Economy) -> RenderableType:
    """What a run comes to, a row a figure, and what that rests on."""
    return Group(
        Text("The run", style="bold"), Padding(_table(found), (0, 0, 0, 2)), Text(), *assumed(economy.sentences())
    )


def assumed(sentences: Sequence[str]) -> Iterator[RenderableType]:
    """A heading and the sentences below it."""
    yield Text("Assumed of the run", style="bold")
    for sentence in sentences:
        yield Padding(Text(sentence), (0, 0, 0, 2), expand=False)


def _table(found: Economics) -> RenderableType:
    """A row a figure."""
    table = Table.grid(padding=(0, 2), pad_edge=False)
    table.add_column(style="dim", no_wrap=True)
    table.add_column()
    for name, value in _rows(found):
        table.add_row(name, value)
    return table


def _rows(found: Economics) -> list[tuple[str, str]]:
    rows = [("tokens a day", f"{found.tokens_per_day / 1e9:,.2f}B, with {percent(found.goodput)} goodput")]
    if found.days is not None and found.gpu_hours is not None and found.energy_kwh is not None:
        late = {True: ", within the deadline", False: ", past the deadline", None: ""}[found.meets_deadline]
        rows += [("run", f"{days(found.days)} days{late}: {found.steps:,} steps, {found.gpu_hours:,.0f} GPU-hours")]
        if found.cost_usd is not None:
            rows += [("cost", f"${found.cost_usd:,.0f}")]
        rows += [("energy", f"{found.energy_kwh / 1e3:,.1f} MWh, {found.power_w / 1e3:,.1f} kW")]
    per_million = f"{digits(found.gpu_hours_per_million_tokens)} GPU-hours"
    if found.cost_usd_per_million_tokens is not None:
        per_million += f", ${digits(found.cost_usd_per_million_tokens)}"
    rows += [("a million tokens", f"{per_million}, {digits(found.energy_kwh_per_million_tokens)} kWh")]
    expected = f"{digits(found.interruptions_per_day)} a day"
    if found.interruptions is not None:
        expected += f", {digits(found.interruptions)} in the run"
    rows += [("interruptions", f"{expected}; each takes {duration(found.restart_s)} to start again")]
    every = f"every {found.checkpoint_every_steps:,} steps ({duration(found.checkpoint_every_s)})"
    size = f"{found.checkpoint_bytes / GIB:,.0f} GiB, {duration(found.checkpoint_write_s)} to write"
    return [*rows, ("checkpoints", f"{every}, {size}"), ("spare nodes", f"{found.spare_nodes:,}")]

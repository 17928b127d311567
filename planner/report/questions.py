"""Answers to questions about clusters for the terminal: one line, then what was compared and what it rests on."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.economics import Economics
from planner.report.economics import days, dollars
from planner.report.quantities import digits, duration, gib
from planner.study.cheapest import Cheapest, Option
from planner.study.upgrades import Upgrade, Upgrades
from planner.summary import PlanSummary

__all__ = ["cheapest_line", "cheapest_report", "upgrades_line", "upgrades_report"]


def upgrades_line(found: Upgrades) -> str:
    """The answer in one line."""
    first = found.upgrades[0]
    if first.plan is None:
        return f"{first.text}: nothing fits"
    if found.plan is None:
        return f"{first.text}: fits, at {duration(first.plan.step_time_s)} a step; as it is nothing fits"
    if found.best is None:
        return f"no upgrade helps: a step stays at {duration(found.plan.step_time_s)}"
    assert first.faster is not None
    cost = _cost_change(found.economics, first.economics)
    steps = f"{duration(first.plan.step_time_s)} a step instead of {duration(found.plan.step_time_s)}"
    return f"{first.text}: {first.faster:+.1%} tokens a second ({steps}), {cost} GPU-hours a token"


def _cost_change(before: Economics | None, after: Economics | None) -> str:
    assert before is not None
    assert after is not None
    return f"{after.gpu_hours_per_million_tokens / before.gpu_hours_per_million_tokens - 1.0:+.1%}"


def upgrades_report(found: Upgrades) -> RenderableType:
    """The line, a row for each upgrade, and notes."""
    table = _table(("", "upgrade"), ("step", "faster", "sensitivity", "GPU-h/Mtoken", "GiB", "GPUs"), "layout")
    if found.plan is not None:
        table.add_row("", "as it is", duration(found.plan.step_time_s), "", "", *_figures(found.plan, found.economics))
    for each in found.upgrades:
        table.add_row(each.resource, each.text, *_gains(each), *_figures(each.plan, each.economics))
    return _report(upgrades_line(found), table, found.notes)


def _gains(upgrade: Upgrade) -> tuple[str, str, str]:
    if upgrade.plan is None:
        return "nothing fits", "", ""
    faster = "" if upgrade.faster is None else f"{upgrade.faster:+.1%}"
    sensitivity = "" if upgrade.sensitivity is None else f"{upgrade.sensitivity:.2f}"
    return duration(upgrade.plan.step_time_s), faster, sensitivity


def _figures(plan: PlanSummary | None, found: Economics | None) -> tuple[str, ...]:
    if plan is None or found is None:
        return "", "", "", ""
    return digits(found.gpu_hours_per_million_tokens), gib(plan.device_bytes), f"{plan.gpus:,}", plan.layout


def cheapest_line(found: Cheapest) -> str:
    """The answer in one line."""
    best = found.answer
    if best is None or best.economics is None:
        fastest = min((each for each in found.tried if each.economics is not None), key=_days, default=None)
        if fastest is None:
            return "no cluster: nothing fits on any that was tried"
        return f"no cluster is in time: {fastest.gpus:,} x {fastest.gpu} take {days(_days(fastest))} days"
    cost, time = dollars(best.economics.cost_usd, 1e6), days(best.economics.days)
    nodes = f"{best.nodes:,} node{'s' * (best.nodes != 1)}"
    return f"{best.gpus:,} x {best.gpu} ({nodes}): ${cost} M in {time} days"


def _days(option: Option) -> float:
    assert option.economics is not None
    assert option.economics.days is not None
    return option.economics.days


def cheapest_report(found: Cheapest) -> RenderableType:
    """The line, a row for each cluster that was tried, the cheapest in time first, and notes."""
    table = _table(("GPU",), ("GPUs", "days", "M$", "GPU-hours", "MWh", "goodput", "step"), "layout")
    for each in found.tried:
        plan, money = each.plan, each.economics
        if plan is None or money is None or money.gpu_hours is None or money.energy_kwh is None:
            table.add_row(
                each.gpu, f"{each.gpus:,}", *[""] * 6, Text(each.reasons[0] if each.reasons else "", style="dim")
            )
            continue
        late = "" if each.meets else " late"
        figures = (f"{days(money.days)}{late}", dollars(money.cost_usd, 1e6), f"{money.gpu_hours:,.0f}")
        energy = f"{money.energy_kwh / 1e3:,.0f}"
        shown = (energy, f"{money.goodput:.1%}", duration(plan.step_time_s), plan.layout)
        table.add_row(each.gpu, f"{each.gpus:,}", *figures, *shown)
    return _report(cheapest_line(found), table, found.notes)


def _table(names: Sequence[str], figures: Sequence[str], last: str) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in names:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column(last, overflow="fold")
    return table


def _report(line: str, table: Table, notes: Sequence[str]) -> RenderableType:
    return Group(
        Text(line, style="bold"),
        Padding(table, (1, 0, 1, 2), expand=False),
        *(Padding(Text(note), (0, 0, 0, 2), expand=False) for note in notes),
    )

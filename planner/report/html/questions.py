"""Answers to questions about clusters as pages: what single upgrades bring, and the cheapest cluster for a run."""

from collections.abc import Iterator
from dataclasses import dataclass

from planner.economics import Economy
from planner.report.economics import days, dollars
from planner.report.html.page import rendered
from planner.report.html.scatter import Point, Scatter, scatter
from planner.report.quantities import digits, duration, gib, percent
from planner.report.questions import cheapest_line, upgrades_line
from planner.study.cheapest import Cheapest, Option
from planner.study.upgrades import Upgrade, Upgrades

__all__ = ["question_page"]

UPGRADE_COLUMNS = (
    *(("upgrade", "text"), ("step", "figure"), ("faster", "figure"), ("GPU-hours a million tokens", "figure")),
    *(("GiB", "figure"), ("GPUs", "figure"), ("layout", "text"), ("sensitivity", "figure")),
)
OPTION_COLUMNS = (
    *(("cluster", "text"), ("days", "figure"), ("GPU-hours", "figure"), ("MWh", "figure"), ("goodput", "figure")),
    *(("step", "figure"), ("layout", "text"), ("million $", "figure")),
)


@dataclass(frozen=True)
class Row:
    """A row of the table: its texts, how long its bar is in percent, and whether it is the answer."""

    cells: tuple[str, ...]
    at: float = 0.0
    own: bool = False
    key: str = ""


def question_page(found: Upgrades | Cheapest, economy: Economy) -> str:
    """The page. Raises RequestError where jinja2 is not installed."""
    upgrades = isinstance(found, Upgrades)
    line = upgrades_line(found) if isinstance(found, Upgrades) else cheapest_line(found)
    heading = "What single upgrades bring" if upgrades else "The cheapest cluster"
    return rendered(
        "question.html",
        title=f"{heading}: {line}",
        heading=heading,
        line=f"{line[:1].upper()}{line[1:]}.",
        points=None if isinstance(found, Upgrades) else _points(found),
        columns=UPGRADE_COLUMNS if upgrades else OPTION_COLUMNS,
        bar_name="sensitivity" if upgrades else "cost",
        rows=list(_upgrade_rows(found) if isinstance(found, Upgrades) else _option_rows(found)),
        notes=found.notes,
        assumptions=economy.sentences(),
    )


def _upgrade_rows(found: Upgrades) -> Iterator[Row]:
    """The optimum as it is, then the upgrades."""
    if found.plan is not None and found.economics is not None:
        plan = found.plan
        cost = digits(found.economics.gpu_hours_per_million_tokens)
        figures = (duration(plan.step_time_s), "", cost, gib(plan.device_bytes), f"{plan.gpus:,}", plan.layout, "")
        yield Row(("as it is", *figures))
    largest = max((abs(each.sensitivity or 0.0) for each in found.upgrades), default=0.0) or 1.0
    for each in found.upgrades:
        yield Row(_cells(each), 100 * max(each.sensitivity or 0.0, 0.0) / largest, each is found.best)


def _cells(upgrade: Upgrade) -> tuple[str, ...]:
    plan = upgrade.plan
    if plan is None or upgrade.economics is None:
        return upgrade.text, "nothing fits", "", "", "", "", upgrade.reasons[0] if upgrade.reasons else "", ""
    return (
        upgrade.text,
        duration(plan.step_time_s),
        "" if upgrade.faster is None else f"{upgrade.faster:+.1%}",
        digits(upgrade.economics.gpu_hours_per_million_tokens),
        gib(plan.device_bytes),
        f"{plan.gpus:,}",
        plan.layout,
        "" if upgrade.sensitivity is None else f"{upgrade.sensitivity:.2f}",
    )


def _option_rows(found: Cheapest) -> Iterator[Row]:
    """Every cluster that was tried; the bar is its cost."""
    costs = [each.economics.cost_usd for each in found.tried if each.economics is not None and each.economics.cost_usd]
    dearest = max(costs, default=0.0) or 1.0
    for number, each in enumerate(found.tried):
        name = f"{each.gpus:,} x {each.gpu}"
        plan, run = each.plan, each.economics
        if plan is None or run is None or run.gpu_hours is None or run.energy_kwh is None:
            yield Row((name, "", "", "", "", "", each.reasons[0] if each.reasons else "", ""), key=str(number))
            continue
        cells = (
            name,
            days(run.days) + " late" * (not each.meets),
            f"{run.gpu_hours:,.0f}",
            f"{run.energy_kwh / 1e3:,.0f}",
            percent(run.goodput),
            duration(plan.step_time_s),
            plan.layout,
            dollars(run.cost_usd, 1e6),
        )
        yield Row(cells, 100 * (run.cost_usd or 0.0) / dearest, each is found.answer, str(number))


def _points(found: Cheapest) -> Scatter | None:
    """The clusters by days and cost; None where none has both."""
    points = [
        _point(number, each, each is found.answer)
        for number, each in enumerate(found.tried)
        if each.economics is not None and each.economics.days and each.economics.cost_usd
    ]
    return scatter(points, "days", "million $", "{:.4g}".format, "{:.4g}".format) if points else None


def _point(number: int, option: Option, chosen: bool) -> Point:
    run = option.economics
    assert run is not None
    assert run.days is not None
    assert run.cost_usd is not None
    layout = option.plan.layout if option.plan is not None else ""
    tip = f"{option.gpus:,} x {option.gpu}\n{layout}\n{days(run.days)} days, ${dollars(run.cost_usd, 1e6)} M"
    return Point(run.days, run.cost_usd / 1e6, "", tip, chosen, str(number))

"""A study for the terminal: a row a scenario, the best of them, what it rests on."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.report.economics import assumed, days, dollars
from planner.report.quantities import duration, gib, percent
from planner.study.result import ScenarioResult, Study

__all__ = ["study_report"]

COMFORTABLE_WIDTH = 100
MOST_REASONS = 8


def study_report(study: Study, width: int = 100) -> RenderableType:
    """A table with a row for each scenario, * on the front of time against cost; counts, notes and assumptions."""
    title = Text(_title(study), style="bold")
    sections: list[RenderableType] = [title, Padding(_table(study, width), (1, 0, 1, 2), expand=False)]
    sections += [Padding(Text(line), (0, 0, 0, 2), expand=False) for line in (*_counts(study), *study.notes)]
    return Group(*sections, Text(), *assumed(study.assumptions))


def _title(study: Study) -> str:
    shared = ", ".join(f"{key} {value}" for key, value in study.common.items() if key not in ("gap", "top-k"))
    return f"{len(study.scenarios):,} scenarios of {shared}"


def _table(study: Study, width: int) -> Table:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for each in study.swept:
        table.add_column(each.key, justify="right", no_wrap=True)
    of_run = any(each.economics is not None and each.economics.days is not None for each in study.scenarios)
    cost = (
        ("days", "k$" if study.cost_unit == "USD" else "k GPU-h")
        if of_run
        else (("$/Mtoken",) if study.cost_unit == "USD" else ("GPU-h/Mtoken",))
    )
    for name in ("step", "tokens/s", "MFU", "GiB", "goodput", *cost):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("", no_wrap=True)
    table.add_column("layout" if width >= COMFORTABLE_WIDTH else "", overflow="fold")
    for scenario in study.scenarios:
        table.add_row(*scenario.inputs_of(study), *_cells(scenario, study, of_run, len(cost)))
    return table


def _cells(scenario: ScenarioResult, study: Study, of_run: bool, costs: int) -> list[str | Text]:
    """What a row shows beside the inputs."""
    plan, found = scenario.plan, scenario.economics
    if plan is None or found is None:
        return [scenario.status, *[""] * (5 + costs), ""]
    dollar = study.cost_unit == "USD"
    if of_run:
        total = found.cost_usd if dollar else found.gpu_hours
        cost = [days(found.days) + ("" if found.meets_deadline is not False else " late"), dollars(total, 1e3)]
    else:
        cost = [dollars(found.cost_usd_per_million_tokens if dollar else found.gpu_hours_per_million_tokens)]
    shown = [duration(plan.step_time_s), f"{plan.tokens_per_s:,.0f}", percent(plan.mfu), gib(plan.device_bytes)]
    short = Text(_layout(scenario))
    return [*shown, percent(found.goodput), *cost, "*" * scenario.pareto, short]


def _layout(scenario: ScenarioResult) -> str:
    """The degrees in use, short: TP2 PP4x4 CP4 DP8 b1."""
    assert scenario.plan is not None
    layout = scenario.plan.parallelism
    parts = [f"TP{layout.tp}", f"PP{layout.pp}" + f"x{layout.vpp}" * (layout.vpp > 1)]
    parts += [f"{name.upper()}{getattr(layout, name)}" for name in ("cp", "ep") if getattr(layout, name) > 1]
    return " ".join([*parts, f"DP{layout.dp}", f"b{layout.micro_batch_size}"])


def _counts(study: Study) -> list[str]:
    """How many scenarios ended how, and the cheapest."""
    ended: dict[str, int] = {}
    for each in study.scenarios:
        ended[each.status] = ended.get(each.status, 0) + 1
    counts = ", ".join(f"{count:,} {status}" for status, count in ended.items())
    return [f"{counts}; * on the front of time against cost of a token.", *_reasons(study)]


def _reasons(study: Study) -> list[str]:
    """Why scenarios have no plan: each reason once, with the number of scenarios and the first of them."""
    first: dict[str, list[ScenarioResult]] = {}
    for each in study.scenarios:
        for reason in each.reasons[:1]:
            first.setdefault(reason, []).append(each)
    lines = []
    for reason, scenarios in list(first.items())[:MOST_REASONS]:
        where = ", ".join(f"{key} {value}" for key, value in scenarios[0].inputs.items())
        more = f" and {len(scenarios) - 1:,} more" * (len(scenarios) > 1)
        lines.append(f"{where}{more}: {reason}")
    left = len(first) - MOST_REASONS
    return [*lines, *([f"{left:,} further reasons: --json has them all."] if left > 0 else [])]

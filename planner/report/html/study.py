"""A study as a page: what is best, the front of time against cost, sweeps, what each input changes, every scenario."""

from collections import Counter
from dataclasses import dataclass
from typing import Any

from planner.report.economics import days
from planner.report.html.effects import effects
from planner.report.html.fields import Fields, Number
from planner.report.html.page import rendered
from planner.report.html.scatter import Point, Scatter, scatter
from planner.report.html.sweeps import metrics, sweeps
from planner.report.quantities import duration, gib, percent
from planner.study import ScenarioResult, Study

__all__ = ["study_page"]

STATUS = {
    "planned": "planned",
    "limit": "planned, a limit stopped the proof",
    "infeasible": "nothing fits",
    "invalid": "cannot be asked",
    "open": "not finished",
}


@dataclass(frozen=True)
class ScenarioRow:
    """A scenario as a row: its inputs, how it ended, and its figures in the order of the columns."""

    number: int
    inputs: tuple[str, ...]
    status: str
    told: str
    tip: str
    layout: str
    reasons: tuple[str, ...]
    figures: tuple[Number | None, ...]
    pareto: bool


def study_page(study: Study) -> str:
    """The page. Raises RequestError where jinja2 is not installed."""
    fields = Fields(study)
    columns = _columns(study)
    measures, changes = effects(study)
    counts: Counter[str] = Counter(each.status for each in study.scenarios)
    return rendered(
        "study.html",
        title=f"Study: {_subject(study)}",
        study=study,
        subject=_subject(study),
        tiles=_tiles(study, fields),
        counts=[(counts[status], told) for status, told in STATUS.items() if counts[status]],
        front=_front(study),
        sweeps=sweeps(study, fields),
        measures=measures,
        effects=changes,
        columns=[name for name, _, _ in columns],
        rows=[_row(study, fields, each, columns) for each in study.scenarios],
        status=STATUS,
        statuses=[status for status in STATUS if counts[status]],
    )


def _subject(study: Study) -> str:
    """What the study is about: its models, and what they run on where all scenarios share it."""
    models = study.common.get("model") or ", ".join(
        value for each in study.swept if each.key == "model" for value in each.values
    )
    return models or "scenarios"


def _columns(study: Study) -> list[tuple[str, str, Any]]:
    """(heading, field, form) of the figures that some scenario has."""
    speed, cost, *_ = metrics(study)
    wanted: list[tuple[str, str, Any]] = [
        ("Step", "plan.step_time_s", duration),
        ("B tokens a day", speed.field, speed.text),
        (cost.name, cost.field, cost.text),
        ("MFU", "plan.mfu", percent),
        ("GiB", "plan.device_bytes", gib),
        *([] if "gpus" in {each.key for each in study.swept} else [("GPUs", "plan.gpus", lambda count: f"{count:,}")]),
        ("Days", "economics.days", days),
        ("GPU-hours", "economics.gpu_hours", lambda hours: f"{hours:,.0f}"),
        ("Cost, $", "economics.cost_usd", lambda cost: f"{cost:,.0f}"),
    ]
    return [column for column in wanted if any(_known(each, column[1]) for each in study.scenarios)]


def _known(scenario: ScenarioResult, field: str) -> bool:
    part, name = field.split(".")
    return getattr(getattr(scenario, part), name, None) is not None


def _row(study: Study, fields: Fields, scenario: ScenarioResult, columns: list[tuple[str, str, Any]]) -> ScenarioRow:
    where = f"scenarios[{scenario.number}]"
    figures = tuple(fields(f"{where}.{field}", form) if _known(scenario, field) else None for _, field, form in columns)
    return ScenarioRow(
        number=scenario.number,
        inputs=scenario.inputs_of(study),
        status=scenario.status,
        told=STATUS[scenario.status],
        tip=_tip(study, scenario),
        layout=scenario.plan.layout if scenario.plan is not None else "",
        reasons=scenario.reasons,
        figures=figures,
        pareto=scenario.pareto,
    )


def _tip(study: Study, scenario: ScenarioResult) -> str:
    """What the pointer tells of a scenario: its inputs, and the optimum's layout or the reason that there is none."""
    inputs = ", ".join(f"{key} {value}" for key, value in scenario.inputs.items())
    plan = scenario.plan
    if plan is None:
        reason = scenario.reasons[0] if scenario.reasons else ""
        return f"{inputs}\n{STATUS[scenario.status]}{': ' if reason else ''}{reason}"
    peak = f"{gib(plan.device_bytes)} of {gib(plan.capacity_bytes)} GiB"
    again = f"recompute {plan.recompute}"
    return (
        f"{inputs}\n{plan.layout}\n{plan.batch}; {again}\n{duration(plan.step_time_s)}, MFU {percent(plan.mfu)}, {peak}"
    )


def _priced(study: Study) -> list[ScenarioResult]:
    cost = metrics(study)[1].field
    return [each for each in study.planned if _known(each, cost)]


def _front(study: Study) -> Scatter | None:
    """Time against cost of all scenarios that have both; None where none has. The front is the study's own."""
    found = _priced(study)
    if not found:
        return None
    cost = metrics(study)[1]
    points = [
        Point(
            x=86_400 / (each.economics.tokens_per_day / 1e9) / 3600 if each.economics is not None else 0.0,
            y=getattr(each.economics, cost.field.split(".")[1]),
            label="",
            tip=_tip(study, each),
            chosen=each.pareto,
            key=str(each.number),
        )
        for each in found
    ]
    work = [(each.plan.model, each.plan.seq_len) if each.plan is not None else None for each in found]
    fronts = [
        [index for index, each in enumerate(found) if each.pareto and work[index] == of] for of in dict.fromkeys(work)
    ]
    return scatter(points, "hours a billion tokens", cost.name, "{:.4g}".format, "{:.4g}".format, fronts)


def _tiles(study: Study, fields: Fields) -> list[dict[str, Any]]:
    """The fastest and the cheapest scenario, with what they take and their layouts."""
    speed, cost, *_ = metrics(study)
    tiles = []
    for heading, metric, among, sign in (
        ("Fastest", speed, list(study.planned), -1),
        ("Cheapest tokens", cost, _priced(study), 1),
    ):
        if among:
            best = min(among, key=lambda each: sign * fields.value(f"scenarios[{each.number}].{metric.field}"))
            tiles.append(
                {
                    "heading": heading,
                    "number": fields(f"scenarios[{best.number}].{metric.field}", metric.text),
                    "unit": metric.name,
                    "inputs": ", ".join(f"{key} {value}" for key, value in best.inputs.items()),
                    "layout": best.plan.layout if best.plan is not None else "",
                    "key": best.number,
                }
            )
    return tiles

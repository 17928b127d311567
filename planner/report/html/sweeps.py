"""The sweeps of a study as drawings: a curve along one input for each value of another, and a heat map of the two.

Studies of more inputs have a panel for each combination of the others.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import product

from planner.report.axes import round_values
from planner.report.html.fields import Fields, Number
from planner.report.html.times import duration_tick
from planner.report.palette import UPPER
from planner.report.quantities import digits, duration, percent
from planner.study import ScenarioResult, Study, SweptInput

__all__ = ["Cell", "Curve", "Dot", "Metric", "Panel", "Sweeps", "metrics", "sweeps"]

# Panels of one measure on a page; what is beyond is in the table.
MOST_PANELS = 24
# Of a curve's height, above the largest value.
HEADROOM = 1.06
# Of a curve's height, what a name takes.
NAME_HEIGHT = 7.5


@dataclass(frozen=True)
class Metric:
    """What is drawn of a scenario: its name, its field, how it is written, and whether more of it is better."""

    key: str
    name: str
    field: str
    text: Callable[[float], str]
    tick: Callable[[float], str]
    more_is_better: bool = False


@dataclass(frozen=True)
class Cell:
    """A scenario in a heat map: its number, or none where it has no plan; `at` is between 0 (least) and 100 (most)."""

    scenario: int
    number: Number | None
    at: float
    status: str

    @property
    def is_upper(self) -> bool:
        """Whether its colour is of the upper part of the scale."""
        return self.at >= UPPER


@dataclass(frozen=True)
class Dot:
    """A scenario on a curve, in percent from the left and from the top."""

    scenario: int
    left: float
    top: float
    text: str


@dataclass(frozen=True)
class Curve:
    """The scenarios of one value, in runs without gaps; `shade` is between 0 (first value) and 100 (last).

    Its name stands at its end, `name_top` percent from the top: there, or lower where another name is.
    """

    name: str
    shade: float
    runs: tuple[tuple[Dot, ...], ...]
    name_top: float = 0.0


@dataclass(frozen=True)
class Panel:
    """One combination of the other inputs: its curves, and the rows of its heat map with their headings."""

    name: str
    curves: tuple[Curve, ...]
    rows: tuple[tuple[str, tuple[Cell, ...]], ...]


@dataclass(frozen=True)
class Sweeps:
    """All panels of one measure, on one scale."""

    metric: Metric
    x: SweptInput
    y: SweptInput | None
    panels: tuple[Panel, ...]
    left_out: int
    ticks: tuple[tuple[float, str], ...]


def metrics(study: Study) -> tuple[Metric, ...]:
    """What is drawn of a study."""
    cost = "cost_usd_per_million_tokens" if study.cost_unit == "USD" else "gpu_hours_per_million_tokens"
    unit = "$" if study.cost_unit == "USD" else "GPU-hours"
    return (
        Metric(
            key="speed",
            name="billion tokens a day",
            field="economics.tokens_per_day",
            text=lambda rate: digits(rate / 1e9),
            tick=lambda rate: f"{rate / 1e9:.4g}",
            more_is_better=True,
        ),
        Metric("cost", f"{unit} a million tokens", f"economics.{cost}", digits, "{:.4g}".format),
        Metric("mfu", "MFU", "plan.mfu", percent, lambda share: percent(share, 0), more_is_better=True),
        Metric("step", "step time", "plan.step_time_s", duration, duration_tick),
    )


def sweeps(study: Study, fields: Fields) -> list[Sweeps]:
    """Every measure of a study along the input of most values; nothing where no input has two."""
    varied = sorted((each for each in study.swept if len(each.values) > 1), key=lambda each: -len(each.values))
    if not varied:
        return []
    x, y, others = varied[0], varied[1] if len(varied) > 1 else None, varied[2:]
    found = {each.inputs_of(study): each for each in study.scenarios}
    drawn = []
    for metric in metrics(study):
        values = {
            each.number: float(fields.value(f"scenarios[{each.number}].{metric.field}"))
            for each in study.planned
            if _has(each, metric)
        }
        if values:
            panels = [_panel(study, fields, metric, values, found, x, y, dict(chosen)) for chosen in _rest(others)]
            most = HEADROOM * max(values.values())
            ticks = tuple((100 - 100 * value / most, metric.tick(value)) for value in round_values(most, most=4))
            drawn.append(Sweeps(metric, x, y, tuple(panels[:MOST_PANELS]), max(len(panels) - MOST_PANELS, 0), ticks))
    return drawn


def _has(scenario: ScenarioResult, metric: Metric) -> bool:
    """Whether the scenario has a number for the measure: without a price of its GPU it has no cost."""
    part, name = metric.field.split(".")
    return getattr(getattr(scenario, part), name, None) is not None


def _rest(others: list[SweptInput]) -> list[tuple[tuple[str, str], ...]]:
    """Every combination of the values of the other inputs."""
    return [
        tuple(zip((each.key for each in others), values, strict=True))
        for values in product(*(each.values for each in others))
    ]


def _panel(
    study: Study,
    fields: Fields,
    metric: Metric,
    values: dict[int, float],
    found: dict[tuple[str, ...], ScenarioResult],
    x: SweptInput,
    y: SweptInput | None,
    others: dict[str, str],
) -> Panel:
    fixed = {each.key: each.values[0] for each in study.swept} | others
    name = ", ".join(f"{key} {value}" for key, value in others.items())
    low, high = min(values.values()), max(values.values())
    curves, rows = [], []
    series = y.values if y is not None else ("",)
    for index, of_y in enumerate(series):
        chosen = fixed | ({y.key: of_y} if y is not None else {})
        line = [found[tuple((chosen | {x.key: of_x})[each.key] for each in study.swept)] for of_x in x.values]
        rows.append((of_y, tuple(_cell(each, fields, metric, values, low, high) for each in line)))
        shade = 100 * index / max(len(series) - 1, 1)
        curves.append(Curve(of_y, shade, _runs(line, metric, values, HEADROOM * high)))
    return Panel(name, _named(curves), tuple(rows))


def _named(curves: list[Curve]) -> tuple[Curve, ...]:
    """The curves with room for their names: names at one end stand below each other."""
    lowest: dict[float, float] = {}
    placed: dict[str, float] = {}
    ends = [(curve.runs[-1][-1], curve.name) for curve in curves if curve.runs]
    for end, name in sorted(ends, key=lambda each: each[0].top):
        placed[name] = max(end.top, lowest.get(end.left, -NAME_HEIGHT) + NAME_HEIGHT)
        lowest[end.left] = placed[name]
    return tuple(replace(curve, name_top=placed.get(curve.name, 0.0)) for curve in curves)


def _cell(
    scenario: ScenarioResult, fields: Fields, metric: Metric, values: dict[int, float], low: float, high: float
) -> Cell:
    if scenario.number not in values:
        return Cell(scenario.number, None, 0.0, scenario.status)
    at = 100 * (values[scenario.number] - low) / (high - low) if high > low else 50.0
    number = fields(f"scenarios[{scenario.number}].{metric.field}", metric.text)
    return Cell(scenario.number, number, at, scenario.status)


def _runs(
    line: list[ScenarioResult], metric: Metric, values: dict[int, float], most: float
) -> tuple[tuple[Dot, ...], ...]:
    """Neighbours that have a number, joined; a scenario without a plan is a gap."""
    runs: list[list[Dot]] = [[]]
    for index, each in enumerate(line):
        if each.number not in values:
            runs.append([])
            continue
        value = values[each.number]
        left = 4 + 92 * index / max(len(line) - 1, 1)
        runs[-1].append(Dot(each.number, left, 100 - 100 * value / most, metric.text(value)))
    return tuple(tuple(run) for run in runs if run)

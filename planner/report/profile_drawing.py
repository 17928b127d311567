"""The tables of a measured profile as an SVG file that stands alone: rates over sizes, one panel a kind of operator."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from cost_models.rate_tables import RateTable, rate_tables
from cost_models.specs.measured_profile import MeasuredProfile
from planner.report.profile import rate, sizes_text
from planner.report.quantities import words

__all__ = ["svg"]

# Colours that people with any colour vision tell apart (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
STYLE = """
.profile{--page:#ffffff;--ink:#22272e;--line:#d8dde3}
@media (prefers-color-scheme:dark){.profile{--page:#14181d;--ink:#dde3ea;--line:#323a44}}
.page{fill:var(--page)}.profile text{fill:var(--ink);font:11px system-ui,sans-serif}
.profile .title{font-size:15px;font-weight:600}.profile .panel{font-size:13px;font-weight:600}
.grid{stroke:var(--line);stroke-width:1}.end{text-anchor:end}.middle{text-anchor:middle}
.curve{fill:none;stroke-width:1.8}
"""
PANEL_WIDTH, PANEL_HEIGHT, LEGEND_WIDTH = 560, 260, 250
LEFT, TOP, BOTTOM, TITLE = 96, 34, 40, 44
MOST_CURVES = len(COLOURS)


@dataclass(frozen=True)
class Curve:
    """Rates over one size, the others held."""

    label: str
    sizes: Sequence[float]
    rates: Sequence[float]


def svg(measured: MeasuredProfile) -> str:
    """The text of the file: a panel for every table of products, one for each group of the others."""
    panels = _panels(rate_tables(measured.cluster.gpu, measured.profile))
    width, height = PANEL_WIDTH + LEGEND_WIDTH, TITLE + PANEL_HEIGHT * max(len(panels), 1)
    drawn = "".join(
        f'<g transform="translate(0 {TITLE + PANEL_HEIGHT * index})">{_panel(*panel)}</g>'
        for index, panel in enumerate(panels)
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="profile" width="{width}" height="{height}" '
        f'viewBox="0 0 {width} {height}"><style>{STYLE}</style><rect class="page" width="{width}" height="{height}"/>'
        f'<text class="title" x="{LEFT}" y="26">{escape(measured.profile.name)}</text>{drawn}</svg>\n'
    )


Panel = tuple[str, str, str, list[Curve]]


def _panels(tables: Mapping[str, RateTable]) -> list[Panel]:
    """(title, name of the size, unit, curves): products and attention by themselves, other tables by part."""
    panels: dict[tuple[str, str, str], list[Curve]] = {}
    for table in tables.values():
        along, curves = _curves(table)
        if table.part in ("gemm", "attention"):
            panels[words(table.name), along, table.unit] = curves
            continue
        named = [Curve(f"{words(table.name)} {curve.label}".strip(), curve.sizes, curve.rates) for curve in curves]
        panels.setdefault((words(table.part), along, table.unit), []).extend(named)
    return [
        (*names, curves[start : start + MOST_CURVES])
        for names, curves in panels.items()
        for start in range(0, len(curves), MOST_CURVES)
    ]


def _curves(table: RateTable) -> tuple[str, list[Curve]]:
    """Rates along the longest axis, at the first, middle and last node of the others."""
    names = list(table.axes)
    along = max(names, key=lambda name: (len(table.axes[name]), -names.index(name)))
    place = names.index(along)
    others = [name for name in names if name != along]
    held = [sorted({0, (len(table.axes[name]) - 1) // 2, len(table.axes[name]) - 1}) for name in others]
    # All others at their first, at their middle, at their last node: the diagonal says most with the fewest curves.
    picks = [tuple(each[min(step, len(each) - 1)] for each in held) for step in range(max(map(len, held), default=1))]
    curves = []
    for pick in dict.fromkeys(picks):
        index: tuple[int | slice, ...] = (*pick[:place], slice(None), *pick[place:])
        label = sizes_text({name: table.axes[name][node] for name, node in zip(others, pick, strict=True)})
        curves.append(Curve(label, table.axes[along], np.asarray(table.rates[index]).tolist()))
    return along, curves


def _panel(title: str, along: str, unit: str, curves: Sequence[Curve]) -> str:
    """One panel: both axes logarithmic."""
    sizes = [size for curve in curves for size in curve.sizes]
    rates = [reached for curve in curves for reached in curve.rates]
    across, up = _Axis.over(sizes, LEFT, PANEL_WIDTH - 10), _Axis.over(rates, PANEL_HEIGHT - BOTTOM, TOP)
    lines = [f'<text class="panel" x="{LEFT}" y="20">{escape(f"{title}, {unit} over {along}")}</text>']
    for value, place in up.decades():
        lines.append(f'<line class="grid" x1="{LEFT}" x2="{PANEL_WIDTH - 10}" y1="{place:.1f}" y2="{place:.1f}"/>')
        lines.append(f'<text class="end" x="{LEFT - 6}" y="{place + 4:.1f}">{escape(rate(value, unit))}</text>')
    for value, place in across.powers_of_two():
        bottom = PANEL_HEIGHT - BOTTOM
        lines.append(f'<line class="grid" x1="{place:.1f}" x2="{place:.1f}" y1="{TOP}" y2="{bottom}"/>')
        text = sizes_text({along: value}) if along == "bytes" else f"{value:,.6g}"
        lines.append(f'<text class="middle" x="{place:.1f}" y="{bottom + 16}">{escape(text)}</text>')
    for row, (curve, colour) in enumerate(zip(curves, COLOURS, strict=False)):
        points = [
            (across.place(size), up.place(reached)) for size, reached in zip(curve.sizes, curve.rates, strict=True)
        ]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        lines.append(f'<polyline class="curve" stroke="{colour}" points="{path}"/>')
        lines += [f'<circle r="2.5" fill="{colour}" cx="{x:.1f}" cy="{y:.1f}"/>' for x, y in points]
        top = TOP + 8 + 18 * row
        lines.append(f'<rect x="{PANEL_WIDTH + 4}" y="{top - 9}" width="11" height="11" fill="{colour}"/>')
        lines.append(f'<text x="{PANEL_WIDTH + 21}" y="{top + 1}">{escape(curve.label or title)}</text>')
    return "".join(lines)


@dataclass(frozen=True)
class _Axis:
    """A logarithmic axis from `low` at `start` to `high` at `end`, in units of the drawing."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def over(cls, values: Sequence[float], start: float, end: float) -> "_Axis":
        """The axis that holds some values, and one decade at least where they are alike."""
        low, high = min(values), max(values)
        return cls(low / 1.1, high * 1.1, start, end) if high > 1.5 * low else cls(low / 3, high * 3, start, end)

    def place(self, value: float) -> float:
        """Where a value stands."""
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def powers_of_two(self, most: int = 6) -> list[tuple[float, float]]:
        """(value, place) of powers of two, as many as there is room for."""
        first, last = math.ceil(math.log2(self.low)), math.floor(math.log2(self.high))
        step = max(1, math.ceil((last - first + 1) / most))
        return [(2.0**power, self.place(2.0**power)) for power in range(first, last + 1, step)]

    def decades(self, most: int = 6) -> list[tuple[float, float]]:
        """(value, place) of 1, 2 and 5 of every decade, or of 1 alone, as many as there is room for."""
        decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
        for factors in ((1, 2, 5), (1,)):
            values = [factor * 10.0**decade for decade in decades for factor in factors]
            inside = [value for value in values if self.low <= value <= self.high]
            if len(inside) <= most:
                break
        return [(value, self.place(value)) for value in inside]

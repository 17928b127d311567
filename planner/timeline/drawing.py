"""A timeline as an SVG file that stands alone: a lane a rank, its memory below, a time axis, light and dark."""

from html import escape

from cost_models.schedules.table import Kind
from planner.report.axes import round_interval, round_values
from planner.report.palette import DARK, LIGHT, declarations
from planner.report.quantities import gib, percent
from planner.timeline.lanes import KIND_CLASSES, Scale, check_drawable, critical_marks, labels, memory_area, work_boxes
from planner.timeline.timeline import Timeline

__all__ = ["CLASSES", "MARK", "MEMORY", "STYLE", "WORK", "legend", "svg", "ticks"]

# Drawings take the colours of reports; the classes are those of `lanes`.
COLOURS = ("page", "ink", "faint", "line", "idle", "f", "b", "i", "w", "e", "c", "m", "on")
CLASSES = """
.page{fill:var(--page)}.idle{fill:var(--idle)}.f{fill:var(--f)}.b{fill:var(--b)}.i{fill:var(--i)}.w{fill:var(--w)}
.e{fill:var(--e)}.c{fill:var(--c)}.m{fill:var(--m);opacity:.55}.grid{stroke:var(--line);stroke-width:1}
.drawing text{fill:var(--ink);font:12px system-ui,sans-serif}.drawing .title{font-size:15px;font-weight:600}
.drawing .faint{fill:var(--faint);font-size:11px}.drawing .on{fill:var(--on);font-size:10px;text-anchor:middle;
pointer-events:none}.middle{text-anchor:middle}.end{text-anchor:end}
"""
STYLE = (
    f"\n.drawing{{{declarations({name: LIGHT[name] for name in COLOURS})}}}"
    f"\n@media (prefers-color-scheme:dark){{.drawing{{{declarations({name: DARK[name] for name in COLOURS})}}}}}"
    f"{CLASSES}"
)
LEGEND = {
    "f": "forward",
    "b": "backward",
    "i": "input gradient",
    "w": "weight gradient",
    "e": "exchanges, optimizer",
    "c": "critical path",
    "m": "memory",
}

LEFT, RIGHT, TOP, BOTTOM = 70, 150, 74, 34
WORK, MARK, MEMORY, SPACE = 22, 3, 22, 9
LANE = WORK + MARK + MEMORY + SPACE
NARROWEST, WIDEST, OF_ACTION = 1180, 9000, 3.0
"""Widths of the plot: so many units for an action of the busiest rank, within limits."""
LABEL_WIDTH = 13.0
LETTER = 6.2
UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "us"))


def svg(timeline: Timeline, title: str) -> str:
    """The text of the file. Raises RequestError when the step has too many actions to draw."""
    step = timeline.step
    check_drawable(step)
    width = min(max(NARROWEST, OF_ACTION * max(len(step.actions_of(rank)) for rank in range(step.ranks))), WIDEST)
    scale = Scale(step.step_s, width)
    height = TOP + LANE * step.ranks + BOTTOM
    whole = LEFT + width + RIGHT
    lanes = "".join(_lane(timeline, rank, scale) for rank in range(step.ranks))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="drawing" width="{whole:g}" height="{height}" '
        f'viewBox="0 0 {whole:g} {height}"><style>{STYLE}</style>'
        f'<rect class="page" width="{whole:g}" height="{height}"/>'
        f'<text class="title" x="{LEFT}" y="26">{escape(title)}</text>'
        f"{_legend(timeline)}{lanes}{_axis(scale, height)}</svg>\n"
    )


def ticks(step_s: float, most: int = 10) -> list[tuple[float, str]]:
    """(seconds, text) of round times from 0 to the end of the step, at most so many intervals.

    >>> ticks(0.0451, most=4)
    [(0.0, '0 ms'), (0.02, '20 ms'), (0.04, '40 ms')]
    """
    interval_s = round_interval(step_s, most)
    unit_s, unit = next(((size, name) for size, name in UNITS if interval_s >= size / 10), UNITS[-1])
    return [(time_s, f"{time_s / unit_s:.6g} {unit}") for time_s in round_values(step_s, most)]


def legend(timeline: Timeline) -> list[tuple[str, str]]:
    """(class, name) of what the drawing of this timeline shows."""
    absent = {KIND_CLASSES[kind] for kind in Kind if not (timeline.step.table.kind == kind).any()}
    return [(kind, name) for kind, name in LEGEND.items() if kind not in absent]


def _legend(timeline: Timeline) -> str:
    left, parts = float(LEFT), []
    for kind, name in legend(timeline):
        parts.append(f'<rect class="{kind}" x="{left:g}" y="42" width="12" height="12" rx="2"/>')
        parts.append(f'<text class="faint" x="{left + 17:g}" y="52">{name}</text>')
        left += 34 + LETTER * len(name)
    if timeline.step.table.chunks > 1:
        parts.append(f'<text class="faint" x="{left:g}" y="52">fainter: later chunks of the rank</text>')
    return "".join(parts)


def _lane(timeline: Timeline, rank: int, scale: Scale) -> str:
    step, curve = timeline.step, timeline.memory[rank]
    top = TOP + LANE * rank
    below = WORK + MARK
    full = max(timeline.capacity_bytes, curve.peak_bytes)
    capacity = below + MEMORY * (1 - timeline.capacity_bytes / full)
    numbers = "".join(
        f'<text class="on" x="{left + wide / 2:.1f}" y="{WORK / 2 + 3.5:g}">{micro_batch}</text>'
        for left, wide, micro_batch in labels(step, rank, scale, narrowest=LABEL_WIDTH)
    )
    bubble = percent(step.bubble_s[rank] / step.span_s)
    return (
        f'<g transform="translate({LEFT} {top})">'
        f'<text class="end" x="-10" y="{WORK / 2 + 4:g}">rank {rank}</text>'
        f'<rect class="idle" width="{scale.width:g}" height="{WORK}"/>'
        f"{work_boxes(step, rank, scale, 0, WORK)}{numbers}"
        f"{critical_marks(step, rank, scale, WORK, MARK)}"
        f"{memory_area(curve, full, scale, below, MEMORY)}"
        f'<line class="grid" x1="0" x2="{scale.width:g}" y1="{capacity:g}" y2="{capacity:g}"/>'
        f'<text class="faint" x="{scale.width + 10:g}" y="{WORK / 2 + 4:g}">waits {bubble}</text>'
        f'<text class="faint" x="{scale.width + 10:g}" y="{below + MEMORY / 2 + 4:g}">'
        f"peak {gib(curve.peak_bytes)} of {gib(timeline.capacity_bytes)} GiB</text></g>"
    )


def _axis(scale: Scale, height: float) -> str:
    bottom = height - BOTTOM
    marks = []
    for time_s, text in ticks(scale.step_s):
        x = LEFT + scale.x(time_s)
        marks.append(f'<line class="grid" x1="{x:.1f}" x2="{x:.1f}" y1="{bottom}" y2="{bottom + 6}"/>')
        marks.append(f'<text class="faint middle" x="{x:.1f}" y="{bottom + 20}">{text}</text>')
    return "".join(marks)

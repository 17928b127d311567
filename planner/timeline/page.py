"""A replayed plan as an HTML page that stands alone: the timeline to zoom into, and the tables of the report."""

from typing import Any

from planner.report.jinja import environment
from planner.report.quantities import duration, gib, percent
from planner.timeline.drawing import MARK, MEMORY, STYLE, WORK, legend, ticks
from planner.timeline.lanes import Scale, check_drawable, critical_marks, labels, memory_area, work_boxes
from planner.timeline.tables import path_table, perturbed_table, ranks_table
from planner.timeline.text import Simulation, comparison_lines, subtitle
from planner.timeline.timeline import Timeline

__all__ = ["chart_values", "page"]

WIDTH = 10_000
"""Units of the drawing; the page stretches them to its own width."""
SPACE = 11
NARROWEST_LABEL = 0.012
"""Of the whole width, so that a number of three digits has room."""


def page(simulation: Simulation) -> str:
    """The page. Raises RequestError where jinja2 is not installed, or when the step has too many actions to draw."""
    check_drawable(simulation.timeline.step)
    templates = environment("--html", ("planner.timeline", ""))
    return templates.get_template("page.html").render(_values(simulation)) + "\n"


def _values(simulation: Simulation) -> dict[str, Any]:
    from markupsafe import Markup

    timeline, document = simulation.timeline, simulation.document
    tables = [ranks_table(timeline), path_table(timeline)]
    if simulation.perturbed:
        tables.append(perturbed_table(timeline, simulation.perturbed))
    return {
        "title": f"{document.model.name}: timeline",
        "model": document.model.name,
        "subtitle": subtitle(document),
        "style": Markup(STYLE),
        "figures": _figures(timeline),
        **chart_values(timeline),
        "tables": tables,
        "measured": comparison_lines(simulation.comparison) if simulation.comparison else (),
    }


def chart_values(timeline: Timeline) -> dict[str, Any]:
    """What chart.html and chart.css read: the lanes to zoom into, with their legend and axis."""
    step, scale = timeline.step, Scale(timeline.step.step_s, WIDTH)
    return {
        "legend": legend(timeline),
        "chunked": step.table.chunks > 1,
        "lanes": [_lane(timeline, rank, scale) for rank in range(step.ranks)],
        "ticks": [(100 * time_s / step.step_s, text) for time_s, text in ticks(step.step_s)],
        "width": WIDTH,
        "work_height": WORK,
        "drawn_height": WORK + MARK + MEMORY,
        "lane_height": WORK + MARK + MEMORY + SPACE,
    }


def _figures(timeline: Timeline) -> list[tuple[str, str]]:
    step = timeline.step
    peak = max(curve.peak_bytes for curve in timeline.memory)
    return [
        ("step", duration(step.step_s)),
        ("pipeline", duration(step.span_s)),
        ("global part", duration(step.global_s)),
        ("ranks wait", percent(float(step.bubble_s.mean()) / step.span_s)),
        (f"peak of {gib(timeline.capacity_bytes)} GiB", f"{gib(peak)} GiB"),
    ]


def _lane(timeline: Timeline, rank: int, scale: Scale) -> dict[str, Any]:
    from markupsafe import Markup

    step, curve = timeline.step, timeline.memory[rank]
    full = max(timeline.capacity_bytes, curve.peak_bytes)
    drawn = (
        f'<rect class="idle" width="{WIDTH}" height="{WORK}"/>'
        + work_boxes(step, rank, scale, 0, WORK)
        + critical_marks(step, rank, scale, WORK, MARK)
        + memory_area(curve, full, scale, WORK + MARK, MEMORY)
    )
    numbers = labels(step, rank, scale, narrowest=NARROWEST_LABEL * WIDTH)
    percents = [(f"{100 * left / WIDTH:.3f}", f"{100 * wide / WIDTH:.3f}", number) for left, wide, number in numbers]
    return {
        "drawn": Markup(drawn),
        "labels": percents,
        "waits": percent(float(step.bubble_s[rank]) / step.span_s),
        "peak": f"{gib(curve.peak_bytes)} GiB",
    }

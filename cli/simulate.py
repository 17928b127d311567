"""`plan simulate PLAN`: a plan replayed action by action."""

import sys
from collections.abc import Sequence

from cli.output import console, print_json, print_rendered
from cli.show import document_in
from planner.document import check_writable, write_text
from planner.given_profile import timed_by
from planner.timeline.comparison import compared
from planner.timeline.drawing import svg
from planner.timeline.measured import read_traces
from planner.timeline.perturbation import parse_perturbation, perturbed
from planner.timeline.record import simulation_record
from planner.timeline.text import Simulation, other_step, report, subtitle
from planner.timeline.timeline import timeline_of_plan
from planner.timeline.trace import trace_text


def simulate(
    file: str,
    *,
    as_json: bool,
    svg_file: str | None,
    html_file: str | None,
    trace_file: str | None,
    perturb: Sequence[str],
    compare: Sequence[str],
    profile: str | None,
) -> int:
    """Replays a plan, prints what it found and writes the files that are asked for; the exit code.

    Raises PlannerError or SpecError.
    """
    document, timing = timed_by(document_in(file), profile)
    perturbations = [parse_perturbation(text, len(document.stages)) for text in perturb]
    for path in filter(None, (svg_file, html_file, trace_file)):
        check_writable(path)
    timeline = timeline_of_plan(document, timing)
    step = timeline.step
    comparison = compared(step, read_traces(compare, step.table)) if compare else None
    simulation = Simulation(document, timeline, tuple(perturbed(step, perturbations)), comparison)
    title = f"{document.model.name}, {subtitle(document)}"
    if warning := other_step(document, timeline):
        print(f"plan: {warning}", file=sys.stderr)
    if svg_file:
        write_text(svg(timeline, title), svg_file)
    if html_file:
        from planner.timeline.page import page

        write_text(page(simulation), html_file)
    if trace_file:
        write_text(trace_text(timeline, title), trace_file)
    if as_json:
        print_json(simulation_record(simulation))
    else:
        print_rendered(report(simulation), console())
    return 0

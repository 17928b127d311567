"""A replayed plan for the terminal: the step, its ranks, what it waits for, what slow ranks cost, what was measured."""

from dataclasses import dataclass

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.document import PlanDocument
from planner.report import quantities
from planner.report.quantities import duration, percent
from planner.timeline.comparison import Comparison
from planner.timeline.perturbation import Perturbed
from planner.timeline.tables import TextTable, path_table, perturbed_table, ranks_table
from planner.timeline.timeline import Timeline

__all__ = ["Simulation", "comparison_lines", "other_step", "report", "step_text", "subtitle"]

# Steps that differ by more are not the same prediction: a document holds 9 digits.
SAME_STEP = 1e-6


@dataclass(frozen=True, eq=False)
class Simulation:
    """A replayed plan and what was asked about it."""

    document: PlanDocument
    timeline: Timeline
    perturbed: tuple[Perturbed, ...] = ()
    comparison: Comparison | None = None


def report(simulation: Simulation) -> RenderableType:
    """The whole report."""
    timeline = simulation.timeline
    sections: list[RenderableType] = [
        Text.assemble((simulation.document.model.name, "bold"), f", {subtitle(simulation.document)}"),
        Padding(Text(step_text(timeline)), (1, 0, 0, 2)),
        *_table(ranks_table(timeline)),
        *_table(path_table(timeline)),
    ]
    if simulation.perturbed:
        sections += _table(perturbed_table(timeline, simulation.perturbed))
    if simulation.comparison is not None:
        sections += _section("Measured", Text("\n".join(comparison_lines(simulation.comparison))))
    return Group(*sections)


def subtitle(document: PlanDocument) -> str:
    """The layout and the batch split on one line."""
    layout = document.parallelism
    return f"{quantities.degrees(layout, quantities.zero(document.stages))}, {quantities.batch(layout)}"


def step_text(timeline: Timeline) -> str:
    """The step in one sentence."""
    step = timeline.step
    waits = percent(float(step.bubble_s.mean()) / step.span_s)
    return (
        f"step {duration(step.step_s)}: pipeline {duration(step.span_s)}, in which ranks wait {waits} on average, "
        f"then {duration(step.global_s)} for all ranks together"
    )


def other_step(document: PlanDocument, timeline: Timeline) -> str:
    """What there is to say where a document predicts another step than its replay takes; "" where they agree."""
    told_s, step_s = document.predicted.step_time_s, timeline.step.step_s
    if abs(step_s - told_s) <= SAME_STEP * told_s:
        return ""
    return (
        f"the document predicts a step of {told_s:.9g} s, this version and its catalog {step_s:.9g} s: "
        "it was made with another version or profile"
    )


def comparison_lines(comparison: Comparison) -> list[str]:
    """A comparison in words, top down."""
    ranks = ", ".join(map(str, comparison.missing_ranks))
    missing = f"; no trace of rank{'s' * (len(comparison.missing_ranks) > 1)} {ranks}" * bool(ranks)
    unknown = f"; {comparison.unknown:,} events are not of this plan" * bool(comparison.unknown)
    return [
        f"{comparison.actions:,} actions compared{missing}{unknown}",
        f"first to last action: predicted {duration(comparison.predicted_span_s)}, "
        f"measured {duration(comparison.measured_span_s)}",
        f"the middle rank takes {comparison.forward_ratio:.3f} of the predicted time for forwards, "
        f"{comparison.backward_ratio:.3f} for backwards; beyond that:",
        _slowest_line(comparison),
        _deviation_line(comparison),
    ]


def _slowest_line(comparison: Comparison) -> str:
    excess = percent(float(comparison.rank_ratio[comparison.slowest_rank]) - 1)
    name = f"slowest is rank {comparison.slowest_rank}, {excess} over the prediction"
    return name if comparison.slowest_deviates else f"no rank is slow ({name})"


def _deviation_line(comparison: Comparison) -> str:
    first = comparison.first
    if first is None:
        return "no action deviates"
    lasts = f"lasts {duration(first.measured_duration_s)}, predicted {duration(first.predicted_duration_s)}"
    begins = f"begins at {duration(first.measured_start_s)}, predicted {duration(first.predicted_start_s)}"
    what = f"{lasts}; it {begins}" if first.what == "duration" else f"{begins}; it {lasts}"
    return f"first deviation: rank {first.rank}, {first.action} {what}, from the rank's first action on"


def _section(heading: str, body: RenderableType) -> list[RenderableType]:
    return [Padding(Text(heading, style="bold"), (1, 0, 0, 0)), Padding(body, (0, 0, 0, 2))]


def _table(content: TextTable) -> list[RenderableType]:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in content.columns:
        is_text = name in content.texts
        table.add_column(name, justify="left" if is_text else "right", no_wrap=not is_text)
    for row in content.rows:
        table.add_row(*row)
    return _section(content.heading, table)

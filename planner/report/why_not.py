"""The answer to why-not for the terminal: one sentence, and where the difference comes from."""

from collections.abc import Callable, Iterable

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.document import PlanDocument, recompute_summary
from planner.report import quantities
from planner.report.quantities import digits, gib, percent, words
from planner.report.sections import body
from planner.why_not import Answer, Difference, Shortfall

__all__ = ["why_not_report"]

HEADINGS = {
    "same": "no difference",
    "forbidden": "a rule forbids it",
    "not_searched": "not searched",
    "over_memory": "over memory",
    "slower": "slower",
    "tie": "tie",
    "faster": "faster",
}


def why_not_report(answer: Answer) -> RenderableType:
    """The answer in a sentence, and by rule, cause of memory or cause of time."""
    sections: list[RenderableType] = [
        Text.assemble(("why not ", "dim"), (answer.asked, "bold"), ": ", (HEADINGS[answer.kind], "bold")),
        body(Text(answer.text)),
    ]
    sections += [body(Text(f"- {rule.id}: {rule.message}")) for rule in answer.rules]
    if answer.shortfall:
        sections += _shortfall(answer.shortfall)
    if answer.other:
        sections += _other(answer, answer.other)
    return Group(*sections, *(body(Text(note)) for note in answer.notes))


def _shortfall(shortfall: Shortfall) -> list[RenderableType]:
    layout = ", ".join(f"{name} {value}" for name, value in shortfall.layout.items())
    line = f"least demanding: {layout}, ZeRO-{shortfall.zero_stage}, {shortfall.recompute} recomputed, layers even"
    return [body(Text(line)), body(_differences(shortfall.causes, "GiB", gib, f"stage {shortfall.stage}"))]


def _other(answer: Answer, other: PlanDocument) -> list[RenderableType]:
    layout = quantities.degrees(other.parallelism, quantities.zero(other.stages))
    line = f"{layout}; {quantities.batch(other.parallelism)}; recompute {recompute_summary(other.stages)}"
    proven = [] if answer.proven else [body(Text("a limit stopped the search: a faster one may exist"))]
    return [
        body(Text(line)),
        *proven,
        body(_differences(answer.time, "s", digits, "other", answer.step_time_s)),
        body(_differences(answer.memory, "GiB", gib, "other")),
    ]


def _differences(
    parts: Iterable[Difference], unit: str, shown: Callable[[float], str], other: str, whole: float | None = None
) -> Table:
    """A row a cause, the largest difference first, and their sum; with `whole`, differences as a share of it, too."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="dim")
    table.add_column(unit)
    for name in ("plan", other, "more", *(["of the step"] if whole else [])):
        table.add_column(name, justify="right", no_wrap=True)
    ordered = sorted(parts, key=lambda each: -abs(each.more))
    total = Difference("total", sum(each.plan for each in ordered), sum(each.other for each in ordered))
    for each in (*ordered, total):
        more = f"{'-' if each.more < 0 else '+'}{shown(abs(each.more))}"
        share = [percent(each.more / whole, 2)] if whole else []
        table.add_row(words(each.cause), shown(each.plan), shown(each.other), more, *share)
    return table

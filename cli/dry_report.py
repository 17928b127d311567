"""A dry run for the terminal: a table for each rank, the reasons of its differences below."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.dry_comparison import Comparison, Quantity
from planner.document import PlanDocument
from planner.report.quantities import batch, degrees, words, zero

__all__ = ["report"]

STYLES = {"equal": "green", "explained": "yellow", "differs": "bold red"}
ROLES = {"only": "the only stage", "first": "the first stage", "last": "the last stage", "middle": "a middle stage"}


def report(document: PlanDocument, found: Sequence[Comparison]) -> RenderableType:
    """The plan, a table for each rank, and what it comes to."""
    layout = document.parallelism
    sections: list[RenderableType] = [
        Text.assemble((document.model.name, "bold"), f" on {layout.gpus_used:,} GPUs, one process, no data"),
        Text(f"{degrees(layout, zero(document.stages))}; {batch(layout)}"),
    ]
    for one in found:
        sections += [Text(), _heading(one), _table(one), *_below(one)]
    return Group(*sections, Text(), _verdict(found))


def _heading(one: Comparison) -> Text:
    run = one.micro_batches_run
    counted = f"counted over {one.micro_batches} micro-batches"
    if run != (one.micro_batches,):
        several = ", ".join(map(str, run[:-1])) + f" and {run[-1]}"
        counted = f"counted over {several} micro-batches, which send evenly more, for {one.micro_batches}"
    return Text.assemble((f"Rank {one.rank}", "bold"), f", {ROLES[one.kind]} (stage {one.stage}): {counted}")


def _table(one: Comparison) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("")
    for name in ("predicted", "dry run"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("")
    numbers = _numbers(one)
    for each in one.quantities:
        notes = " ".join(f"[{numbers[reason.reason]}]" for reason in each.explained)
        verdict = Text.assemble((each.verdict, STYLES[each.verdict]), f" {notes}" * bool(notes))
        if each.unexplained:
            verdict.append(f" by {each.unexplained:+,.0f}", STYLES["differs"])
        table.add_row(_name(each), f"{each.predicted:,.0f}", f"{each.found:,.0f}", verdict)
    return table


def _name(each: Quantity) -> str:
    if each.item[0] == "state":
        return f"{words(each.item[1])}, bytes"
    if len(each.item) == 3:
        unit, group, kind = each.item
        return f"{group}: {words(kind)}, {unit}"
    return each.item[0] if each.unit == each.item[0] else f"{each.item[0]}, {each.unit}"


def _numbers(one: Comparison) -> dict[str, int]:
    reasons = dict.fromkeys(reason.reason for each in one.quantities for reason in each.explained)
    return {reason: number for number, reason in enumerate(reasons, start=1)}


def _below(one: Comparison) -> list[RenderableType]:
    lines = [Text(fault, style=STYLES["differs"]) for fault in one.faults]
    for reason, number in _numbers(one).items():
        amounts = [
            f"{each.amount:+,.0f} {quantity.unit}"
            for quantity in one.quantities
            for each in quantity.explained
            if each.reason == reason
        ]
        lines.append(Text(f"[{number}] {reason} ({', '.join(amounts)})"))
    return [Padding(line, (0, 0, 0, 2), expand=False) for line in lines]


def _verdict(found: Sequence[Comparison]) -> Text:
    wrong = sum(bool(each.unexplained) for one in found for each in one.quantities) + sum(
        len(one.faults) for one in found
    )
    if wrong:
        return Text(f"DIFFERS: {wrong} of what was compared without a known reason", style=STYLES["differs"])
    explained = sum(each.verdict == "explained" for one in found for each in one.quantities)
    total = sum(len(one.quantities) for one in found)
    return Text(f"agrees: {total - explained} of {total} exactly, {explained} with the difference explained")

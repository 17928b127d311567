"""An explanation for the terminal: formulas with their numbers, operators and collectives as tables."""

from collections.abc import Iterable
from itertools import groupby

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.explain.explanation import Explanation, StageExplanation, StepExplanation
from planner.explain.formulas import Formula, written
from planner.explain.operators import KINDS, Call, OperatorCost
from planner.report.quantities import digits, duration, gib, percent, words
from planner.report.sections import body, heading, plain_table
from planner.report.tables import breakdown_table

__all__ = ["explanation_report"]

GROUPS = {"tensor_parallel": "TP", "context_parallel": "CP", "expert_parallel": "EP"}
PASSES = {"forward": "forward_s", "input_grad": "input_grad_s", "weight_grad": "weight_grad_s"}


def explanation_report(explanation: Explanation, width: int = 100) -> RenderableType:
    """The step, the operators of each unit, memory and time of each stage, and what the symbols stand for."""
    sections: list[RenderableType] = [Text(line, style="bold red") for line in explanation.notes]
    sections += _step(explanation.model, explanation.step, width)
    for unit, operators in explanation.operators.items():
        sections += _unit(unit, operators)
    seen: set[tuple[str, str, float]] = set()
    for stages in _alike(explanation.stages):
        sections += _stages(stages, seen, width)
    return Group(*sections, heading("Symbols"), _symbols(explanation.stages))


def _step(model: str, step: StepExplanation, width: int) -> list[RenderableType]:
    m = f"{step.num_microbatches:,} micro-batches, {step.schedule}"
    line = f"step {duration(step.step_time_s)} = span {duration(step.span_s)} + global {duration(step.global_s)}"
    causes = [(cause, seconds, duration(seconds)) for cause, seconds in step.by_cause_s.items()]
    measured = f"{percent(step.measured_share, 0)} of the step rests on measured kernels and links"
    lines = Text(f"{line}; {m}; {measured}; by cause, on the rank with the most work:")
    return [Text(model, style="bold"), body(lines), body(breakdown_table(causes, width))]


def _unit(unit: str, operators: tuple[OperatorCost, ...]) -> list[RenderableType]:
    """Products and other kernels of a unit in one table, its collectives in another."""
    table = plain_table(
        f"{unit}",
        "kind",
        "rows x columns x inner or bytes",
        right=("ms fwd", "ms dgrad", "ms wgrad", "peak", "measured"),
    )
    for each in operators:
        if not each.total_s or each.communication:
            continue
        name = each.name + f" x {each.alike}" * (each.alike > 1)
        peak = percent(each.peak_share, 0) if each.peak_share else ""
        seconds = (digits(1e3 * getattr(each, name)) for name in PASSES.values())
        table.add_row(name, each.kind, _sizes(each), *seconds, peak, _measured(each.measured_share))
    collectives = [(each, call) for each in operators if each.communication for call in each.calls]
    parts: list[RenderableType] = [heading(f"Operators of the {unit}, one micro-batch on one rank"), body(table)]
    return parts + ([body(_collectives(collectives))] if collectives else [])


def _collectives(calls: Iterable[tuple[OperatorCost, Call]]) -> Table:
    table = plain_table("collective", "of", "pass", "group", right=("ranks", "MiB", "ms", "ms exposed", "measured"))
    for each, call in calls:
        times = f"{call.times:g} x " * (call.times != 1)
        exposed = "" if call.exposed_s is None else digits(1e3 * each.alike * call.exposed_s)
        table.add_row(
            f"{times}{words(call.function)}",
            each.name,
            words(call.of_pass),
            f"{GROUPS[each.communication or '']}, {call.tier}",
            str(call.ranks),
            digits(call.moved_bytes / 2**20),
            digits(1e3 * call.seconds),
            exposed,
            _measured(call.measured),
        )
    return table


def _measured(share: float | None) -> str:
    """A share in words where it is all or nothing."""
    return "" if share is None else {0.0: "no", 1.0: "yes"}.get(round(share, 4), percent(share, 0))


def _sizes(operator: OperatorCost) -> str:
    """The sizes of the first call that gives the operator its kind."""
    call = next(call for call in operator.calls if KINDS[f"{call.function}_s"] == operator.kind)
    return call.sizes or f"{digits(call.moved_bytes / 2**20)} MiB"


def _alike(stages: tuple[StageExplanation, ...]) -> list[list[StageExplanation]]:
    """Neighbouring stages whose formulas come to the same."""
    return [list(group) for _, group in groupby(stages, key=lambda each: (each.layers, each.memory, each.time))]


def _stages(stages: list[StageExplanation], seen: set[tuple[str, str, float]], width: int) -> list[RenderableType]:
    stage, ranks = stages[0], [each.rank for each in stages]
    name = f"Stage {ranks[0]}" if len(ranks) == 1 else f"Stages {ranks[0]} to {ranks[-1]}"
    memory = stage.memory
    fills = f"{gib(memory.device_bytes)} of {gib(memory.capacity_bytes)} GiB at the peak, in the {memory.peak}"
    named = [each for each in stage.parts if (each.name, each.expression, each.value) not in seen]
    seen |= {(each.name, each.expression, each.value) for each in named}
    seconds = [(f"{each.name} ({each.unit})", each.total_s, duration(each.total_s)) for each in stage.time.parts]
    sections: list[RenderableType] = [
        heading(f"{name}: {stage.layers} layers, {fills}"),
        body(_formulas(memory.causes)),
        heading(f"{name}: seconds of one micro-batch (forward, input gradient, weight gradient) and of a step"),
        body(_formulas(stage.time.formulas)),
        body(breakdown_table(seconds, width)),
    ]
    if stage.time.exchanges:
        sections += [heading(f"{name}: states on their way, each by itself"), body(_exchanges(stage.time.exchanges))]
    if named:
        sections += [heading(f"{name}: what these name"), body(_formulas(named))]
    return sections


def _exchanges(calls: tuple[Call, ...]) -> Table:
    table = plain_table("what", "collective", "tier", right=("ranks", "MiB", "ms"))
    for call in calls:
        size, seconds = digits(call.moved_bytes / 2**20), digits(1e3 * call.seconds)
        table.add_row(call.of_pass, words(call.function), call.tier, str(call.ranks), size, seconds)
    return table


def _formulas(formulas: Iterable[Formula]) -> Table:
    """Two lines a formula: with its symbols, and with its numbers and what they come to."""
    table = Table.grid(padding=(0, 1), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column()
    for each in formulas:
        value = written(each.value, each.unit)
        if each.numbers in ("", each.expression):  # a constant
            table.add_row(each.name, Text(f"= {value}"))
            continue
        if each.numbers == value:
            table.add_row(each.name, Text(f"= {each.expression} = {value}"))
            continue
        table.add_row(each.name, Text(f"= {each.expression}"))
        table.add_row("", Text(f"= {each.numbers} = {value}"))
    return table


def _symbols(stages: tuple[StageExplanation, ...]) -> RenderableType:
    """Symbols that formulas name; a value where it is the same on all stages that name it."""
    values: dict[tuple[str, str, str], set[float]] = {}
    for stage in stages:
        for symbol in stage.symbols:
            values.setdefault((symbol.symbol, symbol.meaning, symbol.unit), set()).add(symbol.value)
    table = Table.grid(padding=(0, 2), pad_edge=False)
    for (name, meaning, unit), found in values.items():
        table.add_row(name, written(next(iter(found)), unit) if len(found) == 1 else "", meaning)
    return body(table)

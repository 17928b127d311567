"""The tables of the terminal report."""

from collections.abc import Callable
from itertools import groupby

from rich.box import SIMPLE_HEAD
from rich.table import Table

from planner.document import Parallelism, PlanDocument, Stage, recompute_summary, zero_summary
from planner.report import quantities
from planner.report.quantities import digits, gib, percent, words

# Causes of memory that a stage's row adds up, so that it fits into 80 columns.
MEMORY_GROUPS = {
    "params": ("weights", "gathered_parameters"),
    "grads": ("gradients",),
    "optim": ("master_weights", "moments"),
    "activ": ("activations", "logits_and_loss", "workspace", "offload_buffers", "pipeline_buffers"),
    "other": ("communicators", "context", "fragmentation"),
}
# Two breakdowns stand side by side: with narrow bars the longest causes fit into 80 columns.
BAR_WIDTH, NARROW_BAR_WIDTH = 10, 4
COMFORTABLE_WIDTH = 100
COMFORTABLE_DEGREES = 5  # of the alternatives, beside DP and the batch

Columns = dict[str, Callable[[Stage], str]]


def alternatives_table(document: PlanDocument, width: int) -> Table:
    """The plan and the nearest other layouts, a row each; ties are those that the prediction cannot tell apart."""
    best = document.parallelism
    layouts = [best, *(other.parallelism for other in document.alternatives)]
    columns = _degree_columns(layouts)
    show_kind = len({layout.cp_type for layout in layouts if layout.cp > 1}) > 1
    recompute = recompute_summary(document.stages)
    show_recompute = any(other.recompute != recompute for other in document.alternatives)
    crowded = width < COMFORTABLE_WIDTH or show_kind
    table = _table(crowded)
    for name in [*columns, "ZeRO"]:
        table.add_column(name, justify="right", no_wrap=True)
    if show_recompute:
        table.add_column("recompute")
    for name in ("step s", "slower", "", "GiB"):
        table.add_column(name, justify="right", no_wrap=True)

    def add(layout: Parallelism, zero: str, recompute: str, *figures: str, style: str = "") -> None:
        values = [str(getattr(layout, field)) for field in columns.values()]
        if show_kind and layout.cp > 1:
            values[list(columns).index("CP")] += f" {quantities.SHORT_CONTEXT[layout.cp_type]}"
        shown = [quantities.short_modules(recompute)] * show_recompute
        table.add_row(*values, zero, *shown, *figures, style=style)

    step_s, peak_bytes = document.predicted.step_time_s, document.predicted.peak_memory_bytes.device
    zero = zero_summary(document.stages)
    add(best, zero, recompute, digits(step_s), "", "", gib(peak_bytes), style="bold")
    for other in document.alternatives:
        slower, tie = f"{100 * other.slower_by:+.1f} %", "tie" * other.tie
        step = digits(other.step_time_s)
        add(other.parallelism, other.zero_stage, other.recompute, step, slower, tie, gib(other.device_bytes))
    return table


def stages_table(stages: tuple[Stage, ...], width: int) -> Table:
    """Layers, times of a micro-batch and memory of each stage; neighbours that read the same share a row."""
    knobs = _knob_columns(stages)
    crowded = width < COMFORTABLE_WIDTH and "offload" in knobs
    figures = {**_time_columns(crowded), **_memory_columns()}
    table = _table(width < COMFORTABLE_WIDTH)
    table.add_column("stage", no_wrap=True)
    table.add_column("layers", justify="right", no_wrap=True)
    for name in knobs:
        table.add_column(name)
    for name in figures:
        table.add_column(name, justify="right", no_wrap=True)
    columns = (_layers, *knobs.values(), *figures.values())
    rows = [tuple(column(stage) for column in columns) for stage in stages]
    for row, ranks in groupby(range(len(rows)), key=rows.__getitem__):
        table.add_row(_span(list(ranks)), *row)
    return table


def breakdown_table(parts: list[tuple[str, float, str]], width: int) -> Table:
    """Parts of a whole, largest first, with their share as a bar; parts under a thousandth are left out."""
    whole = sum(amount for _, amount, _ in parts) or 1.0
    bar_width = BAR_WIDTH if width >= COMFORTABLE_WIDTH else NARROW_BAR_WIDTH
    table = Table.grid(padding=(0, 1), pad_edge=False)
    table.add_column(no_wrap=True)
    table.add_column(justify="right", no_wrap=True)
    table.add_column(justify="right", no_wrap=True, style="dim")
    table.add_column(no_wrap=True, style="cyan")
    for cause, amount, text in sorted(parts, key=lambda part: -part[1]):
        share = amount / whole
        if share >= 1e-3:
            table.add_row(words(cause), text, percent(share, 0), "=" * round(bar_width * share))
    return table


def _table(crowded: bool) -> Table:
    return Table(
        box=SIMPLE_HEAD, pad_edge=False, padding=(0, int(not crowded), 0, 0), show_edge=False, header_style="dim"
    )


def _degree_columns(layouts: list[Parallelism]) -> dict[str, str]:
    """Heading to field of the degrees worth a column: those that one of the layouts uses."""
    always = {"TP": "tp", "PP": "pp"}
    optional = {"VPP": "vpp", "CP": "cp", "EP": "ep", "ETP": "etp"}
    used = {name: field for name, field in optional.items() if any(getattr(layout, field) > 1 for layout in layouts)}
    names = {layout.schedule for layout in layouts}
    # Where many degrees are in use, VPP tells 1F1B from interleaved 1F1B.
    told = "VPP" in used and names == {"1f1b", "interleaved"} and len(used) + len(always) >= COMFORTABLE_DEGREES
    schedules = {"schedule": "schedule"} if len(names) > 1 and not told else {}
    return {**always, **used, "DP": "dp", "MBS": "micro_batch_size", "M": "num_microbatches", **schedules}


def _layers(stage: Stage) -> str:
    """The number of layers, with E for the embedding and H for the head."""
    ends = "E" * stage.has_embedding + "H" * stage.has_head
    return f"{ends} {stage.layers}".strip()


def _knob_columns(stages: tuple[Stage, ...]) -> Columns:
    """Heading to text of the memory knobs worth a column: what differs, or is not told whole above the table."""
    knobs: Columns = {}
    if len({stage.zero_stage for stage in stages}) > 1:
        knobs["ZeRO"] = lambda stage: str(stage.zero_stage)
    if any(stage.recompute.set for stage in stages):
        knobs["recompute"] = lambda stage: quantities.short_recompute(stage.recompute)
    if any(fraction for stage in stages for _, fraction in stage.offload):
        knobs["offload"] = lambda stage: quantities.short_offload(stage.offload)
    return knobs


def _time_columns(crowded: bool) -> Columns:
    """Heading to text of the times of a micro-batch, in one column where there is no room for two."""

    def forward_s(stage: Stage) -> float:
        return stage.predicted.forward_s

    def backward_s(stage: Stage) -> float:
        return stage.predicted.input_grad_s + stage.predicted.weight_grad_s

    if crowded:
        return {"ms": lambda stage: digits(1e3 * (forward_s(stage) + backward_s(stage)))}
    return {
        "fwd ms": lambda stage: digits(1e3 * forward_s(stage)),
        "bwd ms": lambda stage: digits(1e3 * backward_s(stage)),
    }


def _memory_columns() -> Columns:
    """Heading to text of the groups of memory and of their sum, GiB."""

    def column(causes: tuple[str, ...]) -> Callable[[Stage], str]:
        return lambda stage: gib(sum(getattr(stage.predicted.memory_bytes, cause) for cause in causes))

    groups = {name: column(causes) for name, causes in MEMORY_GROUPS.items()}
    return {**groups, "GiB": lambda stage: gib(stage.predicted.device_bytes)}


def _span(ranks: list[int]) -> str:
    return str(ranks[0]) if len(ranks) == 1 else f"{ranks[0]}-{ranks[-1]}"

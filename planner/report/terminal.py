"""A plan document for the terminal: rich renderables that read well at 80 columns and carry nothing by colour alone."""

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.document import LauncherAnswer, PlanDocument, recompute_summary
from planner.launchers import inexpressible_fields
from planner.report import quantities
from planner.report.heterogeneous import heterogeneous_table
from planner.report.quantities import duration, gib, percent
from planner.report.recipes import recipes_table
from planner.report.sections import body, heading
from planner.report.tables import alternatives_table, breakdown_table, stages_table

VERDICTS = {"yes": "fits", "borderline": "may not fit", "no": "does not fit"}


def report(document: PlanDocument, width: int = 100) -> RenderableType:
    """The whole report: the plan and its certificate, what came close, stages, time and memory, assumptions, launchers.

    `width` is the columns it will be printed on: below 100 the tables stand closer.
    """
    sections: list[RenderableType] = [_title(document), _plan(document)]
    if document.alternatives:
        sections += [heading("Nearest alternatives"), body(alternatives_table(document, width))]
    if document.recipes:
        sections += [heading("Recipes"), body(recipes_table(document))]
    if document.heterogeneous is not None:
        sections += [heading("Stages of different sizes"), body(heterogeneous_table(document.heterogeneous))]
    sections += [heading("Stages"), body(stages_table(document.stages, width))]
    sections += [heading("One step, and the fullest GPU"), body(_breakdowns(document, width))]
    if document.env:
        lines = [f"{name}={value}" for name, value in document.env.items()]
        sections += [heading("Environment"), body(_list(lines))]
    if document.assumptions:
        sections += [heading("Assumed"), body(_list(list(dict.fromkeys(document.assumptions))))]
    if document.launchers:
        sections += [heading("Launchers"), body(_launchers(document))]
    return Group(*sections)


def certificate_text(document: PlanDocument) -> str:
    """The certificate in words."""
    certificate = document.certificate
    bound, gap = duration(certificate.bound_s), percent(certificate.gap, 2)
    searched = f"{certificate.layouts:,} layouts, {certificate.rows:,} stage options"
    if certificate.status == "OPTIMAL":
        return f"optimal within {gap}: no plan of this search takes less than {bound} ({searched})"
    return f"best so far: a limit stopped the search; a plan may be up to {gap} faster, at {bound} ({searched})"


def _title(document: PlanDocument) -> Text:
    cluster, workload = document.cluster, document.workload
    nodes = f"{cluster.nodes:,} node{'s' * (cluster.nodes != 1)}"
    return Text.assemble(
        (document.model.name, "bold"),
        f" on {cluster.gpus:,} x {cluster.gpu.name} ({nodes}), ",
        f"{workload.global_batch:,} sequences of {workload.seq_len:,} tokens, {workload.precision}, ",
        f"{document.recipe.name} recipe",
    )


def _plan(document: PlanDocument) -> RenderableType:
    rows = Table.grid(padding=(0, 2), pad_edge=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column()
    for name, value in _plan_rows(document):
        rows.add_row(name, value)
    return Padding(rows, (1, 0, 0, 2), expand=False)


def _plan_rows(document: PlanDocument) -> list[tuple[str, RenderableType]]:
    layout, stages, predicted = document.parallelism, document.stages, document.predicted
    rows: list[tuple[str, RenderableType]] = [
        ("layout", Text(quantities.degrees(layout, quantities.zero(stages)), style="bold green")),
        ("batch", quantities.batch(layout)),
        ("recompute", _recompute(document)),
    ]
    if any(fraction for stage in stages for _, fraction in stage.offload):
        kept = dict.fromkeys(quantities.offload(stage.offload) for stage in stages)
        rows.append(("offload", "; ".join(kept)))
    if layout.gpus_idle:
        rows.append(("idle", f"{layout.gpus_idle:,} of {document.cluster.gpus:,} GPUs"))
    band = f"{duration(predicted.step_time_low_s)} to {duration(predicted.step_time_high_s)}"
    step = Text.assemble((duration(predicted.step_time_s), "bold"), f" (band {band})")
    mfu = f"{percent(predicted.mfu)} ({percent(predicted.mfu_full_attention)} with attention counted in full)"
    rows += [
        ("step", step),
        ("throughput", f"{predicted.tokens_per_s_per_gpu:,.0f} tokens/s on each GPU"),
        ("MFU", mfu),
        ("memory", _memory(document)),
    ]
    if predicted.host_memory_bytes:
        rows.append(("host memory", f"{gib(predicted.host_memory_bytes)} GiB of each node"))
    rows += [
        ("certificate", certificate_text(document)),
        ("measured", f"{percent(predicted.measured_share, 0)} of the step rests on measured kernels and links"),
    ]
    return rows


def _recompute(document: PlanDocument) -> str:
    summary = recompute_summary(document.stages)
    return f"{summary} layers" if "/" in summary else summary


def _memory(document: PlanDocument) -> Text:
    peak = document.predicted.peak_memory_bytes
    verdict = VERDICTS[document.predicted.verdict]
    style = "green" if document.predicted.verdict == "yes" else "red"
    share = f" ({percent(peak.device / peak.capacity, 0)})" if peak.capacity else ""
    return Text.assemble(
        (f"{gib(peak.device)} GiB", "bold"),
        f" of {gib(peak.capacity)} GiB{share}, band {gib(peak.low)} to {gib(peak.high)}: ",
        (verdict, style),
    )


def _breakdowns(document: PlanDocument, width: int) -> RenderableType:
    predicted = document.predicted
    peak = predicted.peak_memory_bytes
    times = [(cause, time_s, duration(time_s)) for cause, time_s in predicted.time_breakdown_s.items()]
    memory = [(cause, amount, f"{gib(amount)} GiB") for cause, amount in peak.breakdown.items()]
    beside = Table.grid(padding=(0, 3), pad_edge=False)
    beside.add_row(breakdown_table(times, width), breakdown_table(memory, width))
    return beside


def _launchers(document: PlanDocument) -> RenderableType:
    """Who can run the plan; of the others the first reason, and what their best plan takes where that was searched."""
    able = [name for name, answer in document.launchers.items() if answer.expressible]
    lines = [f"{', '.join(able)}: yes"] if able else []
    for name, answer in document.launchers.items():
        if not answer.expressible:
            more = f"; and {len(answer.why_not) - 1} more" if len(answer.why_not) > 1 else ""
            lines.append(f"{name}: no{_own_best(document, answer)}: {answer.why_not[0]}{more}")
    fields = inexpressible_fields(document)
    if fields:
        lines.append(f"No open launcher can express, as it is: {', '.join(fields)}.")
    others = [answer for answer in document.launchers.values() if not answer.expressible]
    if others and not any(answer.best_step_time_s for answer in others):
        lines.append("The best plan of each launcher that cannot, and what that costs: --advise.")
    return _list(lines)


def _own_best(document: PlanDocument, answer: LauncherAnswer) -> str:
    """The step time of a launcher's best plan and what the restriction costs; nothing where it was not searched."""
    if answer.best_step_time_s is None:
        return ""
    slower_by = answer.best_step_time_s / document.predicted.step_time_s - 1.0
    return f", its best plan takes {duration(answer.best_step_time_s)} ({100 * slower_by:+.1f} %)"


def _list(lines: list[str]) -> RenderableType:
    rows = Table.grid(padding=(0, 1), pad_edge=False)
    for line in lines:
        rows.add_row("-", Text(line))
    return rows

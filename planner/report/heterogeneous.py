"""A pipeline of stages of different sizes, as a table for the terminal."""

from rich.table import Table

from planner.document import HeterogeneousPlan
from planner.report.quantities import duration, gib, percent

__all__ = ["heterogeneous_table"]


def heterogeneous_table(plan: HeterogeneousPlan) -> Table:
    """A row for each stage; the step and what it gains are in the caption."""
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    for name in ("stage", "GPUs", "TP", "DP", "MBS", "layers", "ZeRO", "recompute", "GiB"):
        table.add_column(name, justify="right", no_wrap=True)
    several = len({stage.gpu for stage in plan.stages}) > 1
    for rank, stage in enumerate(plan.stages):
        gpus = f"{stage.gpus} {stage.gpu}" if several else stage.gpus
        degrees = (rank, gpus, stage.tp, stage.dp, stage.micro_batch_size)
        held = (stage.layers, stage.zero_stage, stage.recompute_layers)
        table.add_row(*map(str, (*degrees, *held)), gib(stage.device_bytes))
    step, gain = duration(plan.step_time_s), percent(plan.faster_by, 2)
    table.caption = f"1f1b, {plan.num_microbatches:,} micro-batches: {step} a step, {gain} less than the plan"
    table.caption_justify = "left"
    return table

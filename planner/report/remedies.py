"""What would help, for the terminal: a row a change with what it takes and uses, and below how each is made."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from planner.remedies import Remedy
from planner.report.quantities import duration, gib

__all__ = ["remedies_report", "way"]


def remedies_report(remedies: Sequence[Remedy], step_time_s: float | None = None) -> RenderableType:
    """The changes in their order; with a step to compare with, how much longer theirs is."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in ("", "change", ""):
        table.add_column(name, no_wrap=bool(name))
    for name in ("step", *(["longer"] if step_time_s else []), "GiB", "of", "GPUs", "GPU-s/Mtoken"):
        table.add_column(name, justify="right", no_wrap=True)
    for number, each in enumerate(remedies, 1):
        longer = [f"{100 * (each.step_time_s / step_time_s - 1):+.1f} %"] if step_time_s else []
        memory = (gib(each.device_bytes), gib(each.capacity_bytes))
        cost = f"{1e6 * each.gpu_seconds_per_token:,.0f}"
        step = duration(each.step_time_s)
        table.add_row(f"{number}", each.kind, each.text, step, *longer, *memory, f"{each.gpus:,}", cost)
    ways = Table.grid(padding=(0, 1), pad_edge=False)
    for number, each in enumerate(remedies, 1):
        ways.add_row(f"{number}", Text(way(each)))
    return Group(
        table, Text("To apply, in place of flags of the same name or of the configuration:", style="dim"), ways
    )


def way(remedy: Remedy) -> str:
    """Flags in place of those of the same name, or the configuration to check; and the environment."""
    flags = " ".join(f"{flag} {value}" for flag, value in remedy.flags.items())
    return "; ".join(part for part in (flags or remedy.setting, remedy.env) if part)

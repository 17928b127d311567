"""The answer to an inverse question for the terminal: the answer, every value tried, what it rests on."""

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from planner.capacity import Capacity, Question
from planner.report.quantities import duration, gib

__all__ = ["ASKED", "answer_text", "capacity_report"]

ASKED: dict[Question, str] = {
    "min-gpus": "fewest GPUs",
    "max-seq-len": "longest sequence",
    "max-global-batch": "largest batch",
    "largest-model": "largest model",
}


def answer_text(found: Capacity) -> str:
    """The answer: a name, a number, `nothing fits`; `and more` where there is no end."""
    value = found.answer if isinstance(found.answer, str) else f"{found.answer:,}" if found.answer else "nothing fits"
    return value if found.bounded else f"{value} and more"


def capacity_report(found: Capacity) -> RenderableType:
    """The answer, the frontier (steps are those of a first plan, the best one is as fast or faster), and notes."""
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for name in (found.question, "fits", "step at most", "GiB"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("why not")
    for each in found.frontier:
        shown = each.value if isinstance(each.value, str) else f"{each.value:,}"
        step = duration(each.step_time_s) if each.step_time_s is not None else ""
        memory = gib(each.device_bytes) if each.device_bytes is not None else ""
        table.add_row(shown, "yes" if each.fits else "no", step, memory, Text(each.why_not))
    return Group(
        Text.assemble((f"{ASKED[found.question]}: ", "dim"), (answer_text(found), "bold")),
        Padding(table, (1, 0, 1, 2), expand=False),
        *(Padding(Text(note), (0, 0, 0, 2), expand=False) for note in found.notes),
    )

"""The answer that nothing fits as a page: by how much, what fills the GPU, and what would help at which price."""

from dataclasses import dataclass

from planner.errors import InfeasibleError
from planner.infeasible import Shortage
from planner.report.axes import round_values
from planner.report.html.job import Job, facts, listed
from planner.report.html.page import rendered
from planner.report.html.priced import priced_changes
from planner.report.html.stages import BEYOND, GROUP_NAMES, Segment, segments
from planner.report.quantities import GIB, gib, words

__all__ = ["infeasible_page"]

HEADING = "What would fit, each planned in full"


@dataclass(frozen=True)
class ShortageChart:
    """The fullest stage of the least demanding layout as a bar, against what there is; places in percent."""

    stage: int
    needed: str
    capacity: str
    over: str
    times: str
    capacity_at: float
    needed_at: float
    parts: tuple[Segment, ...]
    groups: tuple[tuple[str, str], ...]
    causes: tuple[tuple[str, str], ...]
    ticks: tuple[tuple[float, str], ...]


def infeasible_page(job: Job, error: InfeasibleError) -> str:
    """The page. Raises RequestError where jinja2 is not installed."""
    first, *rest = error.messages
    return rendered(
        "infeasible.html",
        title=f"Nothing fits: {job.model.name} on {job.cluster.gpus:,} {job.cluster.gpu.name}",
        job=job,
        first=first,
        messages=[listed(text) for text in rest],
        shortage=_chart(error.shortage) if error.shortage is not None else None,
        changes=priced_changes({HEADING: error.remedies}),
        facts=facts(job),
    )


def _chart(shortage: Shortage) -> ShortageChart:
    whole = BEYOND * max(shortage.needed_bytes, shortage.capacity_bytes)
    parts = segments(shortage.causes, whole)
    present = {part.kind for part in parts}
    ordered = sorted(shortage.causes.items(), key=lambda item: -item[1])
    return ShortageChart(
        stage=shortage.stage,
        needed=gib(shortage.needed_bytes),
        capacity=gib(shortage.capacity_bytes),
        over=gib(shortage.needed_bytes - shortage.capacity_bytes),
        times=f"{shortage.needed_bytes / shortage.capacity_bytes:.2f}",
        capacity_at=100 * shortage.capacity_bytes / whole,
        needed_at=100 * shortage.needed_bytes / whole,
        parts=parts,
        groups=tuple((group, name) for group, name in GROUP_NAMES.items() if group in present),
        causes=tuple((words(cause), gib(amount)) for cause, amount in ordered if amount),
        ticks=tuple((100 * at * GIB / whole, f"{at:g}") for at in round_values(whole / GIB, most=6)),
    )

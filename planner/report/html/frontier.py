"""The answer to an inverse question on a page: what fits, every value that was tried, and what it rests on."""

from dataclasses import dataclass

from planner.capacity import Capacity, Tried
from planner.report.capacity import ASKED, answer_text
from planner.report.html.page import rendered
from planner.report.quantities import duration, gib

__all__ = ["Frontier", "capacity_page", "frontier"]


@dataclass(frozen=True)
class TriedRow:
    """A value that was tried; `filled` is its memory as a share of the largest, in percent."""

    value: str
    fits: bool
    step: str
    memory: str
    filled: float
    why_not: str
    is_answer: bool


@dataclass(frozen=True)
class Frontier:
    """The answer in words, the values, and what it rests on."""

    asked: str
    question: str
    answer: str
    rows: tuple[TriedRow, ...]
    notes: tuple[str, ...]


def frontier(found: Capacity) -> Frontier:
    """The answer as a page has it."""
    most = max((each.device_bytes or 0.0 for each in found.frontier), default=0.0) or 1.0
    return Frontier(
        asked=ASKED[found.question],
        question=found.question,
        answer=answer_text(found),
        rows=tuple(_row(each, most, each.value == found.answer) for each in found.frontier),
        notes=found.notes,
    )


def capacity_page(found: Capacity) -> str:
    """The page of an answer without a plan. Raises RequestError where jinja2 is not installed."""
    return rendered("capacity.html", title=f"{ASKED[found.question]}: {answer_text(found)}", capacity=frontier(found))


def _row(tried: Tried, most_bytes: float, is_answer: bool) -> TriedRow:
    return TriedRow(
        value=tried.value if isinstance(tried.value, str) else f"{tried.value:,}",
        fits=tried.fits,
        step=duration(tried.step_time_s) if tried.step_time_s is not None else "",
        memory=gib(tried.device_bytes) if tried.device_bytes is not None else "",
        filled=100 * (tried.device_bytes or 0.0) / most_bytes,
        why_not=tried.why_not,
        is_answer=is_answer,
    )

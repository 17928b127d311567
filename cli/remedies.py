"""What would help, for people and for programs."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.output import console, rendered

if TYPE_CHECKING:
    from planner.remedies import Remedy

__all__ = ["as_data", "as_text"]


def as_data(remedies: "Sequence[Remedy]") -> list[dict[str, Any]]:
    """Priced changes as plain data."""
    return [{**asdict(each), "gpu_seconds_per_token": each.gpu_seconds_per_token} for each in remedies]


def as_text(remedies: "Sequence[Remedy]", step_time_s: float | None = None, heading: str = "What would help") -> str:
    """Priced changes as a table under a heading; with a step to compare with, how much longer theirs is."""
    from planner.report.remedies import remedies_report

    return f"{heading}\n{rendered(remedies_report(remedies, step_time_s), console())}"

"""Priced changes on a page: what each does, what it then takes, and how it is made."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from planner.report.quantities import duration, gib
from planner.report.remedies import way

if TYPE_CHECKING:
    from planner.remedies import Remedy

__all__ = ["PricedRow", "PricedTable", "priced_changes"]


@dataclass(frozen=True)
class PricedRow:
    """A change: `cost_at` is its GPU-seconds a token as a share of the dearest, in percent."""

    number: int
    kind: str
    text: str
    way: str
    needs_hardware: bool
    step: str
    longer: str
    memory: str
    capacity: str
    gpus: str
    cost: str
    cost_at: float


@dataclass(frozen=True)
class PricedTable:
    """Changes under their heading."""

    heading: str
    rows: tuple[PricedRow, ...]
    compared: bool


def priced_changes(changes: Mapping[str, "Sequence[Remedy]"], step_time_s: float | None = None) -> list[PricedTable]:
    """A table for each heading that has changes; with a step to compare with, how much longer theirs is."""
    return [
        PricedTable(heading, _rows(found, step_time_s), step_time_s is not None)
        for heading, found in changes.items()
        if found
    ]


def _rows(changes: "Sequence[Remedy]", step_time_s: float | None) -> tuple[PricedRow, ...]:
    dearest = max(each.gpu_seconds_per_token for each in changes)
    return tuple(
        PricedRow(
            number=number,
            kind=each.kind,
            text=each.text,
            way=way(each),
            needs_hardware=each.needs_hardware,
            step=duration(each.step_time_s),
            longer=f"{100 * (each.step_time_s / step_time_s - 1):+.1f} %" if step_time_s else "",
            memory=gib(each.device_bytes),
            capacity=gib(each.capacity_bytes),
            gpus=f"{each.gpus:,}",
            cost=f"{1e6 * each.gpu_seconds_per_token:,.0f}",
            cost_at=100 * each.gpu_seconds_per_token / dearest,
        )
        for number, each in enumerate(changes, 1)
    )

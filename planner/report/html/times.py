"""Where a step goes, as a waterfall: each cause begins where the one before it ends; the last bar is the step."""

from dataclasses import dataclass

from planner.document import PlanDocument
from planner.report.axes import round_values
from planner.report.html.fields import Fields, Number
from planner.report.quantities import duration, words

__all__ = ["KIND_NAMES", "TimeRow", "Waterfall", "waterfall"]

# What a cause is: work that any layout has, exchange between ranks, or waiting.
KINDS = {
    "compute": "work",
    "recompute": "work",
    "optimizer_step": "work",
    "optimizer": "work",
    "pipeline_bubble": "wait",
}
KIND_NAMES = {"work": "work", "exchange": "exchange that nothing hides", "wait": "waiting"}
BEYOND = 1.02


@dataclass(frozen=True)
class TimeRow:
    """A cause; `left` and `wide` in percent of the bar's width."""

    cause: str
    kind: str
    left: float
    wide: float
    seconds: Number
    share: Number


@dataclass(frozen=True)
class Waterfall:
    """The rows, the bar of the whole step and its band, and the axis below, in percent."""

    rows: tuple[TimeRow, ...]
    kinds: tuple[tuple[str, str], ...]
    step: Number
    step_wide: float
    low: Number
    low_at: float
    high: Number
    high_at: float
    ticks: tuple[tuple[float, str], ...]


def waterfall(document: PlanDocument, fields: Fields) -> Waterfall:
    """Work first, the rest from the largest to the smallest."""
    predicted = document.predicted
    whole = BEYOND * predicted.step_time_high_s
    ordered = sorted(predicted.time_breakdown_s.items(), key=lambda item: (item[0] != "compute", -item[1]))
    rows, left = [], 0.0
    for cause, time_s in ordered:
        field = f"predicted.time_breakdown_s.{cause}"
        seconds, share = fields(field, duration), fields.share(field, "predicted.step_time_s")
        rows.append(TimeRow(words(cause), _kind(cause), left, 100 * time_s / whole, seconds, share))
        left += 100 * time_s / whole
    present = {row.kind for row in rows}
    return Waterfall(
        rows=tuple(rows),
        kinds=tuple((kind, name) for kind, name in KIND_NAMES.items() if kind in present),
        step=fields("predicted.step_time_s", duration),
        step_wide=100 * predicted.step_time_s / whole,
        low=fields("predicted.step_time_low_s", duration),
        low_at=100 * predicted.step_time_low_s / whole,
        high=fields("predicted.step_time_high_s", duration),
        high_at=100 * predicted.step_time_high_s / whole,
        ticks=tuple((100 * time_s / whole, duration_tick(time_s)) for time_s in round_values(whole, most=6)),
    )


def duration_tick(time_s: float) -> str:
    """A round time, short: `5 s`, `20 ms`."""
    for size, unit in ((1.0, "s"), (1e-3, "ms")):
        if time_s >= size or time_s == 0:
            return f"{time_s / size:.4g} {unit}"
    return f"{time_s * 1e6:.4g} us"


def _kind(cause: str) -> str:
    return KINDS.get(cause, "exchange")

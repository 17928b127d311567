"""What came close to a plan: each layout's step with its band, and its time against its memory."""

from dataclasses import dataclass

from planner.document import Alternative, Parallelism, PlanDocument, recompute_summary, zero_summary
from planner.report import quantities
from planner.report.axes import round_between
from planner.report.html.fields import Fields, Number
from planner.report.html.scatter import Point, Scatter, scatter
from planner.report.html.times import duration_tick
from planner.report.quantities import GIB, duration, gib, words

__all__ = ["AlternativeRow", "Alternatives", "alternatives", "time_and_memory"]


@dataclass(frozen=True)
class AlternativeRow:
    """A layout, its step with the band in percent of the width, and its memory. The first row is the plan."""

    number: int
    layout: str
    rest: str
    low_at: float
    step_at: float
    high_at: float
    tip: str
    step: Number
    slower: Number | None
    tie: bool
    memory: Number


@dataclass(frozen=True)
class Alternatives:
    """The rows and the axis of their steps; `from_zero` tells whether it begins there."""

    rows: tuple[AlternativeRow, ...]
    ticks: tuple[tuple[float, str], ...]


def alternatives(document: PlanDocument, fields: Fields) -> Alternatives:
    """The plan and the others. All have the plan's band: it belongs to the kind of run, not to the layout."""
    predicted = document.predicted
    steps_s = [predicted.step_time_s, *(other.step_time_s for other in document.alternatives)]
    down, up = (edge / predicted.step_time_s for edge in (predicted.step_time_low_s, predicted.step_time_high_s))
    low_s, high_s = min(steps_s) * down, max(steps_s) * up
    span_s = high_s - low_s or high_s

    def at(time_s: float) -> float:
        return 4 + 92 * (time_s - low_s) / span_s

    def row(
        number: int, layout: Parallelism, zero: str, recompute: str, step: Number, **rest: object
    ) -> AlternativeRow:
        band = f"{duration(step.value * down)} to {duration(step.value * up)}"
        again = f"; recompute {words(recompute)}" * (recompute != "none")
        return AlternativeRow(
            number=number,
            layout=quantities.degrees(layout, zero),
            rest=quantities.batch(layout) + again,
            low_at=at(step.value * down),
            step_at=at(step.value),
            high_at=at(step.value * up),
            tip=f"{step.text}, band {band}",
            step=step,
            **rest,  # type: ignore[arg-type]
        )

    stages = document.stages
    own = row(
        1,
        document.parallelism,
        zero_summary(stages),
        recompute_summary(stages),
        fields("predicted.step_time_s", duration),
        slower=None,
        tie=False,
        memory=fields("predicted.peak_memory_bytes.device", gib),
    )
    others = [
        row(
            index + 2,
            other.parallelism,
            other.zero_stage,
            other.recompute,
            fields(f"alternatives[{index}].step_time_s", duration),
            slower=fields(f"alternatives[{index}].slower_by", lambda by: f"{100 * by:+.1f} %"),
            tie=other.tie,
            memory=fields(f"alternatives[{index}].device_bytes", gib),
        )
        for index, other in enumerate(document.alternatives)
    ]
    ticks = [(at(time_s), duration_tick(time_s)) for time_s in round_between(low_s, high_s, most=6)]
    return Alternatives(rows=(own, *others), ticks=tuple(ticks))


def time_and_memory(document: PlanDocument) -> Scatter | None:
    """The plan and the others by step time and memory of the fullest GPU; None where there are no others."""
    if not document.alternatives:
        return None
    predicted = document.predicted
    own = _point(1, predicted.step_time_s, predicted.peak_memory_bytes.device, "the plan", chosen=True)
    others = [_other(index + 2, other) for index, other in enumerate(document.alternatives)]
    return scatter(
        [own, *others], "step time", "memory of the fullest GPU, GiB", duration_tick, lambda held: f"{held:g}"
    )


def _other(number: int, other: Alternative) -> Point:
    return _point(
        number, other.step_time_s, other.device_bytes, quantities.degrees(other.parallelism, other.zero_stage)
    )


def _point(number: int, step_s: float, device_bytes: float, name: str, chosen: bool = False) -> Point:
    tip = f"{number}: {name}, {duration(step_s)}, {gib(device_bytes)} GiB"
    return Point(step_s, device_bytes / GIB, str(number), tip, chosen)

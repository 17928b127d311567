"""The tables of a replayed plan, as text by row: the terminal and the page print the same."""

from collections.abc import Sequence
from dataclasses import dataclass

from planner.report.quantities import digits, duration, gib, percent
from planner.timeline.path import legs, shortened
from planner.timeline.perturbation import Perturbed
from planner.timeline.timeline import Timeline

__all__ = ["TextTable", "perturbed_table", "path_table", "ranks_table"]


@dataclass(frozen=True)
class TextTable:
    """A table of text; columns in `texts` read from the left, all others are figures."""

    heading: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    texts: frozenset[str] = frozenset()


def ranks_table(timeline: Timeline) -> TextTable:
    """What each rank works, waits and holds."""
    step = timeline.step
    columns = ("rank", "busy s", "waits s", "waits", "on path s", "peak GiB", "at s", "predicted GiB")
    rows = [
        (
            str(rank),
            digits(float(step.busy_s[rank])),
            digits(float(step.bubble_s[rank])),
            percent(float(step.bubble_s[rank]) / step.span_s),
            digits(float(step.path_by_rank_s[rank])),
            gib(curve.peak_bytes),
            digits(curve.peak_s),
            gib(float(timeline.predicted_bytes[rank])),
        )
        for rank, curve in enumerate(timeline.memory)
    ]
    return TextTable("Ranks", columns, tuple(rows))


def path_table(timeline: Timeline) -> TextTable:
    """What the step waits for, in order."""
    rows = [
        (duration(leg.start_s), duration(leg.end_s - leg.start_s), leg.text) for leg in shortened(legs(timeline.step))
    ]
    return TextTable("Critical path", ("at", "lasts", "what the step waits for"), tuple(rows), _LAST)


def perturbed_table(timeline: Timeline, perturbed: Sequence[Perturbed]) -> TextTable:
    """What slower ranks cost, beside the step as planned."""
    columns = ("slower", "step s", "longer", "path moved", "most of the path on")
    planned = ("none", digits(timeline.step.step_s), "", "", _fullest(timeline.step.path_by_rank_s.tolist()))
    rows = [
        (
            ", ".join(f"rank {slow.stage} x {slow.factor:g}" for slow in one.perturbations),
            digits(one.step_s),
            f"{100 * one.slower:+.2f} %",
            percent(one.path_moved, 0),
            _fullest(one.path_by_rank_s),
        )
        for one in perturbed
    ]
    return TextTable("Slower ranks", columns, (planned, *rows), frozenset({"slower"}))


_LAST = frozenset({"what the step waits for"})


def _fullest(by_rank_s: Sequence[float]) -> str:
    """The rank that works most of the critical path."""
    return f"rank {max(range(len(by_rank_s)), key=by_rank_s.__getitem__)}"

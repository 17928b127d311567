"""A measured step against the replayed one, top down: the whole, the slowest rank, the first action that deviates.

Ranks may be missing, and each may have a clock of its own: durations and pauses are compared, which need none. What
the cost model misjudges on all ranks alike is no deviation: forwards and backwards are scaled by what the middle rank
takes, and the step is replayed with that before anything is named.
"""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.schedules.simulate import run_times
from cost_models.schedules.table import BoolArray, Kind
from cost_models.schedules.times import FloatArray
from planner.timeline.measured import Measured
from planner.timeline.step import Step, action_name, replayed

__all__ = ["TOLERANCE", "Comparison", "Deviation", "compared"]

TOLERANCE = 0.1
"""Deviation of an action or a rank that is named, as a fraction: the band of predicted steps."""


@dataclass(frozen=True)
class Deviation:
    """An action that ran otherwise than predicted. Starts count from the first recorded action of its rank."""

    rank: int
    action: str
    what: str
    """`duration`, or `start`: it began later, after the action before it, than the others' durations explain."""
    predicted_start_s: float
    measured_start_s: float
    predicted_duration_s: float
    measured_duration_s: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """What a measured step says about the replayed one."""

    actions: int
    """Actions compared."""
    missing_ranks: tuple[int, ...]
    """Ranks of which no action was recorded."""
    unknown: int
    """Events named like actions that the plan does not have."""
    predicted_span_s: float
    """From the first to the last recorded action of the rank that takes longest, as predicted."""
    measured_span_s: float
    """The same as measured."""
    forward_ratio: float
    """Measured over predicted seconds of forwards, on the middle rank."""
    backward_ratio: float
    """The same of backwards, input and weight gradients."""
    rank_ratio: FloatArray
    """[ranks] measured over predicted seconds of a rank's recorded actions, once both ratios are in; NaN if missing."""
    slowest_rank: int
    """The rank of the largest ratio."""
    slowest_deviates: bool
    """Whether its ratio is beyond the tolerance."""
    first: Deviation | None
    """The first deviation in the order of the predicted starts, with both ratios in the prediction."""


def compared(step: Step, measured: Measured) -> Comparison:
    """The comparison of the actions that were recorded, of which there must be one."""
    seen, forward = measured.seen, step.table.kind == Kind.FORWARD
    recorded = np.bincount(step.rank[seen], minlength=step.ranks) > 0
    ratios = [_middle(_rank_ratio(step, measured, seen & of_kind)) for of_kind in (forward, ~forward)]
    forward_ratio, backward_ratio = (1.0 if np.isnan(ratio) else ratio for ratio in ratios)
    expected = _rescaled(step, forward_ratio, backward_ratio)
    rank_ratio = _rank_ratio(expected, measured, seen)
    slowest = int(np.nanargmax(rank_ratio))
    return Comparison(
        actions=int(seen.sum()),
        missing_ranks=tuple(np.flatnonzero(~recorded).tolist()),
        unknown=measured.unknown,
        predicted_span_s=_span_s(step, step.start_s, step.end_s, seen),
        measured_span_s=_span_s(step, measured.start_s, measured.end_s, seen),
        forward_ratio=forward_ratio,
        backward_ratio=backward_ratio,
        rank_ratio=rank_ratio,
        slowest_rank=slowest,
        slowest_deviates=bool(rank_ratio[slowest] > 1 + TOLERANCE),
        first=_first_deviation(expected, measured),
    )


def _rank_ratio(step: Step, measured: Measured, chosen: BoolArray) -> FloatArray:
    """[ranks] measured over predicted seconds of the chosen actions; NaN for a rank without any."""
    took_s, expected_s = (
        np.bincount(step.rank[chosen], weights=seconds[chosen], minlength=step.ranks)
        for seconds in (measured.end_s - measured.start_s, step.duration_s)
    )
    ratio: FloatArray = np.divide(took_s, expected_s, out=np.full(step.ranks, np.nan), where=expected_s > 0)
    return ratio


def _middle(ratio: FloatArray) -> float:
    """The median of what is known, the lower one of two: of two ranks, the faster sets the scale."""
    known = np.sort(ratio[np.isfinite(ratio)])
    return float(known[(len(known) - 1) // 2]) if len(known) else np.nan


def _rescaled(step: Step, forward_ratio: float, backward_ratio: float) -> Step:
    times = step.times
    scaled = replace(
        times,
        forward_s=times.forward_s * forward_ratio,
        forward_attention_s=times.forward_attention_s * forward_ratio,
        input_grad_s=times.input_grad_s * backward_ratio,
        backward_attention_s=times.backward_attention_s * backward_ratio,
        weight_grad_s=times.weight_grad_s * backward_ratio,
    )
    return replayed(step.table, scaled, step.global_s)


def _span_s(step: Step, start_s: FloatArray, end_s: FloatArray, seen: BoolArray) -> float:
    """The longest time, over ranks, from the first recorded start to the last recorded end."""
    first, last = np.full(step.ranks, np.inf), np.full(step.ranks, -np.inf)
    np.minimum.at(first, step.rank[seen], start_s[seen])
    np.maximum.at(last, step.rank[seen], end_s[seen])
    return float((last - first).max())


def _first_deviation(expected: Step, measured: Measured) -> Deviation | None:
    """The earliest recorded action that lasts otherwise than predicted, or begins later than all others explain."""
    took_s, tolerated_s = measured.end_s - measured.start_s, TOLERANCE * expected.duration_s
    otherwise = np.abs(took_s - expected.duration_s) > tolerated_s
    waited_s = _pauses_s(expected, measured.start_s, measured.end_s)
    # What a rank waits for others is explained by how long their actions took, not by what was predicted.
    explained = run_times(expected.table, expected.times, np.where(measured.seen, took_s, expected.duration_s))
    late = waited_s - _pauses_s(expected, *explained) > tolerated_s
    deviating = np.flatnonzero(otherwise | late)
    if not deviating.size:
        return None
    action = int(deviating[np.argmin(expected.start_s[deviating])])
    origin = int(np.flatnonzero(measured.seen & (expected.rank == expected.rank[action]))[0])
    return Deviation(
        rank=int(expected.rank[action]),
        action=action_name(expected.table, action),
        what="duration" if otherwise[action] else "start",
        predicted_start_s=float(expected.start_s[action] - expected.start_s[origin]),
        measured_start_s=float(measured.start_s[action] - measured.start_s[origin]),
        predicted_duration_s=float(expected.duration_s[action]),
        measured_duration_s=float(took_s[action]),
    )


def _pauses_s(step: Step, start_s: FloatArray, end_s: FloatArray) -> FloatArray:
    """[actions] seconds since the end of the action before it on its rank; NaN for the first, or if not recorded."""
    pauses_s = np.full(step.table.actions, np.nan)
    pauses_s[1:] = start_s[1:] - end_s[:-1]
    pauses_s[step.table.rank_start[:-1]] = np.nan
    return pauses_s

"""A replayed plan as plain values, for `--json`."""

from dataclasses import asdict
from typing import Any

import numpy as np

from planner.timeline.comparison import Comparison
from planner.timeline.path import legs
from planner.timeline.perturbation import Perturbed
from planner.timeline.text import Simulation
from planner.timeline.timeline import Timeline

__all__ = ["simulation_record"]


def simulation_record(simulation: Simulation) -> dict[str, Any]:
    """Seconds, bytes and fractions by name; what was not asked for is left out."""
    step = simulation.timeline.step
    record: dict[str, Any] = {
        "step_time_s": step.step_s,
        "span_s": step.span_s,
        "global_s": step.global_s,
        "bubble_fraction": float(step.bubble_s.mean()) / step.span_s,
        "capacity_bytes": simulation.timeline.capacity_bytes,
        "ranks": [_rank(simulation.timeline, rank) for rank in range(step.ranks)],
        "critical_path": [asdict(leg) for leg in legs(step)],
    }
    if simulation.perturbed:
        record["perturbed"] = [_perturbed(one) for one in simulation.perturbed]
    if simulation.comparison is not None:
        record["comparison"] = _comparison(simulation.comparison)
    return record


def _rank(timeline: Timeline, rank: int) -> dict[str, Any]:
    step, curve = timeline.step, timeline.memory[rank]
    return {
        "rank": rank,
        "busy_s": float(step.busy_s[rank]),
        "bubble_s": float(step.bubble_s[rank]),
        "bubble_fraction": float(step.bubble_s[rank]) / step.span_s,
        "end_s": float(step.rank_end_s[rank]),
        "critical_s": float(step.path_by_rank_s[rank]),
        "peak_bytes": curve.peak_bytes,
        "peak_at_s": curve.peak_s,
        "predicted_bytes": float(timeline.predicted_bytes[rank]),
    }


def _perturbed(perturbed: Perturbed) -> dict[str, Any]:
    record = asdict(perturbed)
    record["step_time_s"] = record.pop("step_s")
    return record


def _comparison(comparison: Comparison) -> dict[str, Any]:
    ratios = [None if np.isnan(ratio) else float(ratio) for ratio in comparison.rank_ratio]
    first = comparison.first
    return {
        "actions": comparison.actions,
        "missing_ranks": list(comparison.missing_ranks),
        "unknown_events": comparison.unknown,
        "predicted_span_s": comparison.predicted_span_s,
        "measured_span_s": comparison.measured_span_s,
        "forward_ratio": comparison.forward_ratio,
        "backward_ratio": comparison.backward_ratio,
        "rank_ratio": ratios,
        "slowest_rank": comparison.slowest_rank,
        "slowest_deviates": comparison.slowest_deviates,
        "first_deviation": None if first is None else asdict(first),
    }

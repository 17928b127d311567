"""What each end of a hop takes of its rank: pipelines as they were timed, less the layers in them.

Two pipelines of the same layers, one with a chunk a rank and one with a chunk a layer, have the same work and few or
many hops. Whatever makes all layers slower in a pipeline than in a row, a neighbour on the host, say, does so in both:
two figures, how much slower layers are and what an end of a hop takes, are where both steps come out as timed.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from planner.beyond import line_of_shares
from planner.passes import ends_of_hops

__all__ = ["TimedPipelines", "hop_ends"]

Array = NDArray[np.float64]
# Of the figures, to see how steps depend on them; spans are made of straight pieces, so that a few turns find them.
NUDGE, TURNS = 1e-3, 20
LEAST_SCALE = 0.1


@dataclass(frozen=True)
class TimedPipelines:
    """Steps of nothing but layers over two neighbours, and their layers by themselves."""

    tokens: int
    """Of a micro-batch."""
    layers: int
    """Of each rank."""
    micro_batches: int
    forward_s: float
    """Of a layer in a row of them, one micro-batch."""
    both_ways_s: float
    hop_s: float
    """What an unhidden hop delays the receiver."""
    step_s: Mapping[str, float]
    """By schedule: `1f1b` with one chunk a rank, `interleaved` with a chunk a layer."""


def hop_ends(timed: Iterable[TimedPipelines]) -> tuple[float, float] | None:
    """Seconds of each end of a hop, a constant and a part for each token, by the share of layers; None of no pipeline.

    Neither is below 0.
    """
    found = [(each.tokens, _end_s(each), each.both_ways_s) for each in timed]
    return line_of_shares(*zip(*found, strict=True)) if found else None


def _end_s(timed: TimedPipelines) -> float:
    """Seconds of an end of a hop with which both pipelines take as long as timed; 0 where that is less."""
    wanted = np.array(list(timed.step_s.values()))
    # How much slower layers are, and an end of a hop in layers both ways.
    found = np.array([1.0, 0.0])
    for _ in range(TURNS):
        spans = _spans(timed, found)
        missing = wanted - spans
        if np.all(np.abs(missing) < 1e-6 * wanted):
            break
        slopes = [(_spans(timed, found + nudge) - spans) / NUDGE for nudge in NUDGE * np.eye(2)]
        found = found + np.linalg.solve(np.column_stack(slopes), missing)
        found = np.maximum(found, [LEAST_SCALE, 0.0])
    return float(found[1] * timed.both_ways_s)


def _spans(timed: TimedPipelines, found: Array) -> Array:
    """Steps of the pipelines with layers slower by a factor and ends of hops of so many layers."""
    slower, end = found
    spans = []
    for schedule in timed.step_s:
        chunks = 1 if schedule == "1f1b" else timed.layers
        ends = end * timed.both_ways_s * ends_of_hops(schedule, 2, chunks)
        layers = slower * timed.layers / chunks
        forward, backward = (
            layers * seconds + ends for seconds in (timed.forward_s, timed.both_ways_s - timed.forward_s)
        )
        table = schedules.actions(schedule, 2, chunks, timed.micro_batches)
        spans.append(float(simulate(table, StageTimes.of(forward, backward, 0 * ends, hop_s=timed.hop_s)).span_s))
    return np.array(spans)

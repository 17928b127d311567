"""The replay of an action graph: when every action ends, for many assignments at once."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cost_models.schedules.errors import StageTimesError
from cost_models.schedules.graph import ActionGraph
from cost_models.schedules.times import FloatArray, StageTimes

NARROW = 16
"""Values a level below which a plain loop over the actions beats array operations on each level (measured)."""
BLOCK = 2_000_000
"""Most end times held at once."""


@dataclass(frozen=True, eq=False)
class TimeColumns:
    """Stage times laid out as the graph indexes them, one column an assignment."""

    duration_s: FloatArray
    """[durations, batch]"""
    first_s: FloatArray
    """[ranks, batch]"""
    last_s: FloatArray
    """[ranks, batch]"""
    hop_s: FloatArray
    """[ranks + 1, batch]; the last row, of no link, is 0."""

    @property
    def batch(self) -> int:
        return int(self.first_s.shape[1])


def blocks(graph: ActionGraph, times: StageTimes) -> Iterator[TimeColumns]:
    """The columns of all assignments in the order of their flattened leading axes, so many at a time as fit `BLOCK`.

    Raises StageTimesError when the times are not of the table's ranks and chunks.
    """
    expected, got = (graph.ranks, graph.chunks), (times.ranks, times.chunks)
    if expected != got:
        msg = f"times must have (ranks, chunks) = {expected}, the table's, got {got}"
        raise StageTimesError(msg)
    batch = math.prod(times.batch)
    n = graph.slices
    kinds = (
        times.slice_forward_s(n),
        times.slice_backward_s(n),
        times.slice_input_grad_s(n),
        times.slice_weight_grad_s(n),
    )
    duration_s = np.stack([kind.reshape(batch, -1) for kind in kinds], axis=1).reshape(batch, -1)
    first_s, last_s, hop_s = (rank.reshape(batch, -1) for rank in (times.first_s, times.last_s, times.hop_s))
    hop_s = np.pad(hop_s, ((0, 0), (0, 1)))
    step = max(1, BLOCK // (graph.actions + graph.ranks))
    for start in range(0, batch, step):
        part = slice(start, start + step)
        yield TimeColumns(*(np.ascontiguousarray(a[part].T) for a in (duration_s, first_s, last_s, hop_s)))


def end_times(graph: ActionGraph, columns: TimeColumns) -> FloatArray:
    """[nodes, batch] seconds at which each node of the graph ends."""
    if columns.batch * graph.actions < NARROW * (len(graph.level_start) - 1):
        return np.stack([_one_by_one(graph, columns, column) for column in range(columns.batch)], axis=1)
    return _level_by_level(graph, columns)


def _level_by_level(graph: ActionGraph, columns: TimeColumns) -> FloatArray:
    end = np.empty((graph.ranks + graph.actions, columns.batch))
    end[: graph.ranks] = columns.first_s
    end[graph.ranks :] = columns.duration_s[graph.duration]
    hop = columns.hop_s[graph.link]
    bounds = graph.level_start.tolist()
    for start, stop in zip(bounds[:-1], bounds[1:], strict=True):
        actions = slice(start - graph.ranks, stop - graph.ranks)
        ready = end.take(graph.source[actions], axis=0)
        ready += hop[actions]
        np.maximum(ready, end.take(graph.previous[actions], axis=0), out=ready)
        end[start:stop] += ready
    return end


def _one_by_one(graph: ActionGraph, columns: TimeColumns, column: int) -> FloatArray:
    duration = columns.duration_s[graph.duration, column].tolist()
    hop = columns.hop_s[graph.link, column].tolist()
    end = columns.first_s[:, column].tolist()
    # The same operations in the same order as level by level: both give the same bits.
    for previous, source, hop_s, duration_s in zip(*graph.predecessors, hop, duration, strict=True):
        free, ready = end[previous], end[source] + hop_s
        end.append(duration_s + (free if free > ready else ready))
    return np.array(end)

"""The critical path of a simulated step, as the coefficients of a linear function of the times.

A step lasts as long as the longest path of its action graph. So the coefficients of any path give a linear lower
bound of the span of every assignment, tight where the path is critical: a cutting plane.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields

import numpy as np

from cost_models.schedules.errors import StageTimesError
from cost_models.schedules.graph import ActionGraph, action_graph
from cost_models.schedules.replay import TimeColumns, blocks, end_times
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind
from cost_models.schedules.times import FloatArray, StageTimes, attention_excess


@dataclass(frozen=True, eq=False)
class PathCoefficients:
    """How often each time lies on a path, a slice of a micro-batch counting as its share of it; the fields match those
    of `StageTimes`."""

    forward: FloatArray
    """[..., ranks, chunks]"""
    input_grad: FloatArray
    """[..., ranks, chunks]"""
    weight_grad: FloatArray
    """[..., ranks, chunks]"""
    first: IntArray
    """[..., ranks]"""
    last: IntArray
    """[..., ranks]"""
    hop: IntArray
    """[..., ranks]"""
    forward_attention: FloatArray
    """[..., ranks, chunks] what slices do beyond equal ones; it can be negative."""
    backward_attention: FloatArray
    """[..., ranks, chunks]"""

    @property
    def key(self) -> bytes:
        """The same for equal paths."""
        return b"".join(np.asarray(getattr(self, field.name), dtype=np.float64).tobytes() for field in fields(self))

    def each(self) -> Iterator["PathCoefficients"]:
        """The paths along the first axis."""
        columns = (getattr(self, field.name) for field in fields(self))
        return (PathCoefficients(*path) for path in zip(*columns, strict=True))

    def length_s(self, times: StageTimes) -> FloatArray:
        """[...] seconds of the path with these times; leading axes broadcast."""
        cells = (
            self.forward * times.forward_s
            + self.input_grad * times.input_grad_s
            + self.weight_grad * times.weight_grad_s
            + self.forward_attention * times.forward_attention_s
            + self.backward_attention * times.backward_attention_s
        ).sum(axis=-1)
        ranks = self.first * times.first_s + self.last * times.last_s + self.hop * times.hop_s
        length_s: FloatArray = (cells + ranks).sum(axis=-1)
        return length_s


def critical_path(table: ActionTable, times: StageTimes) -> PathCoefficients:
    """A longest path of the step for each assignment: `length_s(times)` is its simulated span.

    With any other times the length of the path is at most the span. Raises as `simulate`.
    """
    return span_and_path(table, times)[1]


def span_and_path(table: ActionTable, times: StageTimes) -> tuple[FloatArray, PathCoefficients]:
    """`simulate(table, times).span_s` and `critical_path(table, times)`, of one replay."""
    graph = action_graph(table)
    counts = [_counts(graph, part) for part in blocks(graph, times)]
    span_s, cells, first, last, hop = (np.concatenate(parts) for parts in zip(*counts, strict=True))
    slices = cells.reshape(*times.batch, len(Kind), table.ranks, table.chunks, table.slices)
    kinds, excess = slices.sum(axis=-1) / table.slices, slices @ attention_excess(table.slices)
    whole = kinds[..., Kind.BACKWARD, :, :]
    ranks = (*times.batch, table.ranks)
    path = PathCoefficients(
        forward=kinds[..., Kind.FORWARD, :, :],
        input_grad=kinds[..., Kind.INPUT_GRAD, :, :] + whole,
        weight_grad=kinds[..., Kind.WEIGHT_GRAD, :, :] + whole,
        first=first.reshape(ranks),
        last=last.reshape(ranks),
        hop=hop[:, : table.ranks].reshape(ranks),
        forward_attention=excess[..., Kind.FORWARD, :, :],
        backward_attention=excess[..., Kind.INPUT_GRAD, :, :] + excess[..., Kind.BACKWARD, :, :],
    )
    return span_s.reshape(times.batch), path


def critical_actions(table: ActionTable, times: StageTimes) -> tuple[IntArray, BoolArray]:
    """The actions on a longest path of one assignment, in the order they run, and which of them waited for a hop.

    Both [steps]: indices into the table, and whether the path came over the action's link instead of from its rank.
    The path is the one whose coefficients `critical_path` gives. Raises as `simulate`; StageTimesError for a batch.
    """
    if times.batch:
        msg = f"times must be of one assignment, got leading axes {times.batch}"
        raise StageTimesError(msg)
    graph = action_graph(table)
    (columns,) = blocks(graph, times)
    _, sent, _, path = _longest(graph, columns)
    nodes = path[path[:, 0] >= graph.ranks, 0][::-1]
    action = np.empty(graph.ranks + graph.actions, dtype=np.int64)
    action[graph.node] = np.arange(graph.actions)
    return action[nodes], sent[nodes - graph.ranks, 0]


def _counts(graph: ActionGraph, columns: TimeColumns) -> tuple[FloatArray, IntArray, IntArray, IntArray, IntArray]:
    """[batch, ...] the span, and how often each duration, first, last and link lies on the critical path."""
    span_s, sent, rank, path = _longest(graph, columns)
    batch = np.broadcast_to(np.arange(columns.batch), path.shape)
    on = path >= graph.ranks
    action, column = path[on] - graph.ranks, batch[on]
    link = np.where(sent[action, column], graph.link[action], graph.ranks)
    return (
        span_s,
        _histogram(column, graph.duration[action], (columns.batch, graph.durations)),
        _histogram(batch[-1], path[-1], (columns.batch, graph.ranks)),
        _histogram(batch[-1], rank, (columns.batch, graph.ranks)),
        _histogram(column, link, (columns.batch, graph.ranks + 1)),
    )


def _longest(graph: ActionGraph, columns: TimeColumns) -> tuple[FloatArray, BoolArray, IntArray, IntArray]:
    """The span [batch], which actions waited for a hop [actions, batch], the rank that ends last [batch], the path.

    The path is that of `_walk`.
    """
    end = end_times(graph, columns)
    sent = end[graph.source] + columns.hop_s[graph.link] > end[graph.previous]
    rank_end_s = end[graph.last] + columns.last_s
    rank = np.argmax(rank_end_s, axis=0)
    return rank_end_s.max(axis=0), sent, rank, _walk(graph, sent, graph.last[rank])


def _walk(graph: ActionGraph, sent: BoolArray, end: IntArray) -> IntArray:
    """[steps, batch] nodes from the last action back to the start of a rank, where a path then stays."""
    starts = np.broadcast_to(np.arange(graph.ranks)[:, None], (graph.ranks, sent.shape[1]))
    parent = np.concatenate([starts, np.where(sent, graph.source[:, None], graph.previous[:, None])])
    if sent.shape[1] == 1:  # a plain loop is several times as fast as one over arrays of one
        before, nodes = parent[:, 0].tolist(), [int(end[0])]
        while nodes[-1] >= graph.ranks:
            nodes.append(before[nodes[-1]])
        return np.array(nodes)[:, None]
    column = np.arange(sent.shape[1])
    path = [end]
    while np.any(path[-1] >= graph.ranks):
        path.append(parent[path[-1], column])
    return np.stack(path)


def _histogram(row: IntArray, column: IntArray, shape: tuple[int, int]) -> IntArray:
    return np.bincount(row * shape[1] + column, minlength=shape[0] * shape[1]).reshape(shape)

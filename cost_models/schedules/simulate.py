"""The simulated step of any action table: the step time of record, without the global part."""

from dataclasses import dataclass, replace

import numpy as np

from cost_models.schedules.graph import ActionGraph, action_graph
from cost_models.schedules.replay import TimeColumns, blocks, end_times
from cost_models.schedules.table import ActionTable
from cost_models.schedules.times import FloatArray, StageTimes


@dataclass(frozen=True, eq=False)
class Step:
    """A simulated step; leading axes are those of the times."""

    span_s: FloatArray
    """[...] from 0 to the end of the last rank."""
    rank_end_s: FloatArray
    """[..., ranks] end of each rank, its last_s included."""


def simulate(table: ActionTable, times: StageTimes) -> Step:
    """The step that the table takes with these times.

    A rank runs its actions in order, each as soon as the rank is free and its data has arrived. Sends are
    asynchronous: a hop delays the receiver only.

    Raises InvalidTableError for a table that is not valid, StageTimesError for times of another shape.

    >>> from cost_models.schedules import one_f_one_b
    >>> two_ranks = StageTimes.of([[1.0], [1.0]], [[1.0], [1.0]], [[1.0], [1.0]])
    >>> float(simulate(one_f_one_b.actions(2, 1, 4), two_ranks).span_s)
    15.0
    """
    graph = action_graph(table)
    ends = [end_times(graph, part)[graph.last] + part.last_s for part in blocks(graph, times)]
    rank_end_s = np.concatenate(ends, axis=1).T.reshape(*times.batch, table.ranks)
    return Step(rank_end_s.max(axis=-1), rank_end_s)


def period_s(table: ActionTable, times: StageTimes) -> FloatArray:
    """[...] seconds from step to step where no rank waits for the others in between. Raises as `simulate`.

    Those of the rank that is busy longest, from its first work to its last. Qi et al. 2024 call it the cost of a
    schedule: they step the optimizer at once and validate afterwards.
    """
    start_s, end_s = action_times(table, times)
    begun_s = start_s[..., table.rank_start[:-1]] - times.first_s
    period: FloatArray = (end_s[..., table.rank_start[1:] - 1] + times.last_s - begun_s).max(axis=-1)
    return period


def action_times(table: ActionTable, times: StageTimes) -> tuple[FloatArray, FloatArray]:
    """Start and end in seconds of every action, each [..., actions] in the table's order. Raises as `simulate`."""
    graph = action_graph(table)
    parts = [_starts_and_ends(graph, part) for part in blocks(graph, times)]
    shape = (*times.batch, table.actions)
    start_s, end_s = (np.concatenate(columns, axis=1).T.reshape(shape) for columns in zip(*parts, strict=True))
    return start_s, end_s


def run_times(table: ActionTable, times: StageTimes, duration_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Start and end in seconds of every action, both [actions], where each lasts as long as given.

    `duration_s` [actions], in the table's order; of `times`, which have no leading axes, hops and edges are read.
    Raises as `simulate`.
    """
    graph = action_graph(table)
    (columns,) = blocks(graph, times)
    own = np.empty((graph.actions, 1))
    own[graph.node - graph.ranks, 0] = duration_s
    each = replace(graph, duration=np.arange(graph.actions))
    start_s, end_s = _starts_and_ends(each, replace(columns, duration_s=own))
    return start_s[:, 0], end_s[:, 0]


def _starts_and_ends(graph: ActionGraph, columns: TimeColumns) -> tuple[FloatArray, FloatArray]:
    """Both [actions, batch], in the table's order."""
    end = end_times(graph, columns)
    start = np.maximum(end[graph.previous], end[graph.source] + columns.hop_s[graph.link])
    return start[graph.node - graph.ranks], end[graph.node]

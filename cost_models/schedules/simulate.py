"""The simulated step of any action table: the step time of record, without the global part."""

from dataclasses import dataclass

import numpy as np

from cost_models.schedules.graph import action_graph
from cost_models.schedules.replay import blocks, end_times
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


def action_times(table: ActionTable, times: StageTimes) -> tuple[FloatArray, FloatArray]:
    """Start and end in seconds of every action, each [..., actions] in the table's order. Raises as `simulate`."""
    graph = action_graph(table)
    starts, ends = [], []
    for part in blocks(graph, times):
        end = end_times(graph, part)
        start = np.maximum(end[graph.previous], end[graph.source] + part.hop_s[graph.link])
        starts.append(start[graph.node - graph.ranks])
        ends.append(end[graph.node])
    shape = (*times.batch, table.actions)
    return np.concatenate(starts, axis=1).T.reshape(shape), np.concatenate(ends, axis=1).T.reshape(shape)

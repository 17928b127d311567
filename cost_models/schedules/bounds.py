"""Lower bounds of a step that are linear in the stages, as the paths of its action graph that give them.

Symbols: rank i of p, chunk c of v, m micro-batches; t_i seconds of all chunks of rank i for one micro-batch.
"""

from dataclasses import dataclass

import numpy as np

from cost_models.schedules.table import IntArray
from cost_models.schedules.times import FloatArray, StageTimes


@dataclass(frozen=True, eq=False)
class BoundTerms:
    """The bound max_i(edge_i + W_i), W_i = max(work_i, pass_i + W_{i+1}): a solver adds it up stage by stage.

    The path: rank i does its first work, micro-batch 0 goes on through chunk 0 of ranks i .. k - 1 to rank k, rank k
    works without a pause, the last micro-batch comes back the same way, rank i does its last work. It is in the
    graph of every schedule whose ranks begin with the first forward and end with the last backward of chunk 0. Where
    weight gradients come last (`split_bounds`), the path stays on rank k, and that rank's last work is in `work_s`.
    """

    edge_s: FloatArray
    """[..., ranks] first and last work of the rank."""
    pass_s: FloatArray
    """[..., ranks] chunk 0 once, forward and backward, and both hops to the next rank."""
    work_s: FloatArray
    """[..., ranks] all the rank's work, m * t_i."""

    def value_s(self) -> FloatArray:
        """[...] seconds of the bound."""
        rest = self.work_s[..., -1]
        bound = self.edge_s[..., -1] + rest
        for rank in reversed(range(self.work_s.shape[-1] - 1)):
            rest = np.maximum(self.work_s[..., rank], self.pass_s[..., rank] + rest)
            bound = np.maximum(bound, self.edge_s[..., rank] + rest)
        return bound


def enter_and_return(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> BoundTerms:
    """The terms of the bound for m micro-batches (a number, or one for each assignment) of so many slices.

    Each rank's terms read that rank's times only, so the rank axis may as well run over the options of a stage. Of a
    sliced micro-batch it is slice 0 that goes down first and comes back last.
    """
    chunk_s = times.slice_forward_s(slices)[..., 0, 0] + times.slice_backward_s(slices)[..., 0, 0]
    return BoundTerms(
        edge_s=times.first_s + times.last_s,
        pass_s=chunk_s + 2 * times.hop_s,
        work_s=np.asarray(m)[..., None] * times.work_s,
    )


def reach_s(chunk_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray) -> list[FloatArray]:
    """For each rank, [...] seconds before its first forward can start, micro-batch 0 coming down from rank 0.

    `chunk_s` are the forwards of chunk 0 and `edge_s` is first_s, both [..., ranks]. With backwards and last_s it is
    what must follow a rank's last backward.
    """
    reach = [edge_s[..., 0]]
    for rank in range(1, chunk_s.shape[-1]):
        arrival = reach[-1] + chunk_s[..., rank - 1] + hop_s[..., rank - 1]
        reach.append(np.maximum(edge_s[..., rank], arrival))
    return reach


def edge_excess_s(chunk_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """[...] by how much the worst edge_s outlasts the way to its rank: max(0, max_i(edge_i - sum_{j<i} way_j))."""
    way = np.cumsum(chunk_s + hop_s, axis=-1)
    before = np.concatenate([np.zeros_like(way[..., :1]), way[..., :-1]], axis=-1)
    excess: FloatArray = np.maximum(edge_s - before, 0).max(axis=-1)
    return excess


def late_s(
    unit_s: FloatArray,
    turn_s: FloatArray,
    edge_s: FloatArray,
    hop_s: FloatArray,
    *,
    chunks: int = 1,
    turns_back: int = 1,
) -> FloatArray:
    """[..., ranks] seconds a rank has surely not spent on chunks when the first unit of some turn reaches it.

    A unit is a micro-batch or a slice; a rank takes turns of one or more of them. `unit_s` [..., ranks, turns] is the
    forward of the first unit of each turn, `turn_s` [..., ranks, turns] those of all its units, which the rank has done
    before it starts the next turn. `turns_back` turns in a row are for chunk 0, as many for chunk 1 and so on, and each
    goes on to the next chunk so many turns later. With backwards and last_s it is what surely follows a rank's last
    work in one of its last turns.
    """
    p, turns = unit_s.shape[-2:]
    spent = np.cumsum(turn_s, axis=-1) - turn_s
    late = np.array(np.broadcast_to(edge_s, spent.shape[:-1]))
    back: list[FloatArray] = []
    for turn in range(turns):
        comes_back = turn // turns_back % chunks > 0
        arrival = back[turn - turns_back] if comes_back else edge_s[..., 0]
        for rank in range(p):
            start = np.maximum(late[..., rank] + spent[..., rank, turn], arrival)
            late[..., rank] = start - spent[..., rank, turn]
            arrival = start + unit_s[..., rank, turn] + hop_s[..., rank]
        back.append(arrival)
    return late

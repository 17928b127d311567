"""Lower bounds of the schedules with a split backward, read off their action tables.

The last weight gradients of a rank come after its last input gradient, so that a path back to rank 0 leaves a rank
before it is done.
"""

from collections.abc import Callable
from dataclasses import fields
from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import BoundTerms, reach_s
from cost_models.schedules.critical_path import PathCoefficients, critical_path
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind
from cost_models.schedules.times import FloatArray, StageTimes

COSTS_S = ((1.0, 1.0, 1.0), (1.0, 1.2, 0.8))
"""Forward, input and weight gradient of a chunk in the steps whose critical paths are taken."""
SLOW = 1.3
"""How much slower than the others one rank is in most of those steps, each rank in turn."""
SHORT_HOP_S = 0.02
"""The hop in those steps: of two equally long paths the one with more hops is taken."""


def enter_and_stay(m: int | IntArray, times: StageTimes) -> BoundTerms:
    """The terms of a bound for schedules whose ranks all begin with the first forward, chunk 0 of micro-batch 0.

    The path: rank i does its first work, micro-batch 0 goes on through chunk 0 of ranks i .. k - 1 to rank k, rank k
    works to its end. m is a number, or one for each assignment; each rank's terms read that rank's times only.
    """
    return BoundTerms(
        edge_s=times.first_s,
        pass_s=times.forward_s[..., 0] + times.hop_s,
        work_s=np.asarray(m)[..., None] * times.work_s + times.last_s,
    )


def table_bound_s(table_of: Callable[[int], ActionTable], m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step of the tables `table_of(m)` is below, m a number or one for each assignment.

    The largest of: paths that enter, work through one rank and leave from it (`_enter_and_drain_s`), and the critical
    paths of a few steps of nearly equal ranks, which hold for all others too.
    """
    counts = np.broadcast_to(np.asarray(m), np.broadcast_shapes(np.shape(m), times.batch))
    bound = np.zeros(counts.shape)
    for count in np.unique(counts):
        table, here = table_of(int(count)), counts == count
        bound[here] = _bound_of(table, _where(times, here))
    return bound


def _where(times: StageTimes, here: BoolArray) -> StageTimes:
    """The assignments that are marked, one after the other."""
    chosen = []
    for field in fields(times):
        seconds = getattr(times, field.name)
        own = seconds.shape[len(times.batch) :]
        chosen.append(np.broadcast_to(seconds, here.shape + own)[here])
    return StageTimes(*chosen)


def _bound_of(table: ActionTable, times: StageTimes) -> FloatArray:
    place = table.placement
    rounds, ranks, tail = table.micro_batches // place.routes, table.ranks // place.routes, _tail(table)
    ways = [_enter_and_drain_s(rounds, tail, times, ranks)]
    if place.routes > 1:
        ways.append(_enter_and_drain_s(rounds, tail[::-1, ::-1], _mirrored(times), ranks))
    cuts = _cuts(table)
    for row in np.ndindex(cuts.first.shape[:-1]):
        path = PathCoefficients(*(getattr(cuts, field.name)[row] for field in fields(cuts)))
        ways.append(path.length_s(times))
    bound: FloatArray = np.maximum.reduce(ways)
    return bound


def _enter_and_drain_s(rounds: int, tail: IntArray, times: StageTimes, ranks: int) -> FloatArray:
    """[...] seconds of the worst path of the first `ranks` ranks, which go through their chunks `rounds` times.

    Down to rank k by chunk 0 of the first micro-batch; k's work, to its end, or to its last input gradient, which rank
    k - 1 waits for; on that rank the same again.
    """
    enter = reach_s(times.forward_s[..., 0], times.first_s, times.hop_s)
    rest = (tail * times.weight_grad_s).sum(axis=-1)
    drain, bounds = rest[..., 0] + times.last_s[..., 0], []
    for rank in range(ranks):
        if rank:
            above = times.hop_s[..., rank - 1] + times.input_grad_s[..., rank - 1, 0] + drain
            drain = np.maximum(rest[..., rank] + times.last_s[..., rank], above)
        bounds.append(enter[rank] + rounds * times.work_s[..., rank] - rest[..., rank] + drain)
    bound: FloatArray = np.maximum.reduce(bounds)
    return bound


def _tail(table: ActionTable) -> IntArray:
    """[ranks, chunks] how many weight gradients come after the last input gradient of a rank."""
    tail = np.zeros((table.ranks, table.chunks), dtype=np.int64)
    for rank in range(table.ranks):
        mine = slice(int(table.rank_start[rank]), int(table.rank_start[rank + 1]))
        last = np.flatnonzero(table.kind[mine] == Kind.INPUT_GRAD)[-1]
        tail[rank] = np.bincount(table.chunk[mine][last + 1 :], minlength=table.chunks)
    return tail


def _mirrored(times: StageTimes) -> StageTimes:
    """The times of a two-way placement with its ranks, and so its two copies, the other way round."""
    hop_s = np.concatenate([times.hop_s[..., -2::-1], times.hop_s[..., -1:]], axis=-1)
    cells = (times.forward_s, times.input_grad_s, times.weight_grad_s)
    return StageTimes.of(
        *(cell[..., ::-1, ::-1] for cell in cells),
        first_s=times.first_s[..., ::-1],
        last_s=times.last_s[..., ::-1],
        hop_s=hop_s,
    )


@lru_cache(maxsize=64)
def _cuts(table: ActionTable) -> PathCoefficients:
    """[paths, ...] the critical paths of steps with equal ranks, and of those where one rank is slower."""
    slower = 1 + (SLOW - 1) * np.eye(table.ranks + 1, table.ranks)[..., None]
    costs = np.array(COSTS_S)[:, :, None, None, None]
    forward_s, input_grad_s, weight_grad_s = np.moveaxis(costs * slower * np.ones(table.chunks), 1, 0)
    return critical_path(table, StageTimes.of(forward_s, input_grad_s, weight_grad_s, hop_s=SHORT_HOP_S))

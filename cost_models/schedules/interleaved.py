"""Interleaved 1F1B (Narayanan et al. 2021) in Megatron's order, in groups of as many micro-batches as ranks.

A rank takes p micro-batches through chunk 0, the same through chunk 1 and so on, then the next p; backwards take the
chunks in reverse. Rank i warms up with (v - 1) p + 2 (p - 1 - i) forwards, then alternates.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import edge_excess_s, enter_and_return
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "interleaved"
REQUIRES = "ranks >= 2, chunks >= 2, micro-batches a multiple of ranks"

bound_terms = enter_and_return


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches; works on numbers and on arrays."""
    p, v, m = np.asarray(p), np.asarray(v), np.asarray(m)
    is_legal: BoolArray = (p >= 2) & (v >= 2) & (m >= 1) & (m % np.maximum(p, 1) == 0)
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    unit = np.arange(m * v)
    group, within = np.divmod(unit, p * v)
    chunk, micro_batch = within // p, group * p + within % p
    forwards = np.stack([chunk, micro_batch], axis=1)
    backwards = np.stack([v - 1 - chunk, micro_batch], axis=1)
    rows = [
        warm_up_then_alternate(forwards, backwards, min(m * v, (v - 1) * p + 2 * (p - 1 - rank))) for rank in range(p)
    ]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step: exact for equal stages and chunks, an estimate otherwise.

    m * max t + (p - 1) * t / v, what of first and last outlasts the way to its rank, and the 2 (p v - 1) hops of one
    micro-batch through all stages. A hop longer than the forward or the backward of a chunk costs more than that: the
    warm-up is then too short to hide it.
    """
    work_s = times.work_s
    slowest = work_s.max(axis=-1)
    fill = (work_s.sum(axis=-1) - slowest) / times.chunks
    hops = 2 * (times.ranks * times.chunks - 1) * times.hop_s.max(axis=-1)
    before = edge_excess_s(times.forward_s[..., 0], times.first_s, times.hop_s)
    after = edge_excess_s(times.backward_s[..., 0], times.last_s, times.hop_s)
    total: FloatArray = m * slowest + fill + hops + before + after
    return total


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages.

    The path: micro-batch 0 down the virtual stages to chunk c of rank k, which has run p forwards of each earlier chunk
    by then; all the rest of k's work up to the last backward of chunk c', after which p backwards of each earlier chunk
    follow; the last micro-batch up again.
    """
    enter = _late_s(times.forward_s, times.first_s, times.hop_s)
    leave = _late_s(times.backward_s, times.last_s, times.hop_s)
    work = np.asarray(m)[..., None] * times.work_s
    bound: FloatArray = (enter + work + leave).max(axis=-1)
    return bound


def _late_s(chunk_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """[..., ranks] seconds a rank has surely not spent on chunks when micro-batch 0 reaches one of its own."""
    p, v = chunk_s.shape[-2:]
    done = np.cumsum(chunk_s, axis=-1) * p
    late = np.empty_like(edge_s)
    arrival = edge_s[..., 0]
    for stage in range(p * v):
        chunk, rank = divmod(stage, p)
        if chunk == 0:
            reach = np.maximum(edge_s[..., rank], arrival)
            late[..., rank] = reach
        else:
            reach = np.maximum(arrival, late[..., rank] + done[..., rank, chunk - 1])
            late[..., rank] = reach - done[..., rank, chunk - 1]
        arrival = reach + chunk_s[..., rank, chunk] + hop_s[..., rank]
    return late

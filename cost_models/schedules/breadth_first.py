"""Breadth-first pipeline (Lamy-Poirier 2023, LoopedBFS): all micro-batches forward through chunk 0, then chunk 1 and so
on, then backward through the chunks in reverse. A chunk's parameters are gathered, and its gradients reduced, once.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import enter_and_return
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import in_groups, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "breadth-first"
REQUIRES = "ranks >= 1, chunks >= 1 (more need ranks >= 2), micro-batches >= 1"

bound_terms = enter_and_return


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches; works on numbers and on arrays."""
    p, v = np.asarray(p), np.asarray(v)
    is_legal: BoolArray = (p >= 1) & (v >= 1) & ((p >= 2) | (v == 1)) & (np.asarray(m) >= 1)
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    forwards = in_groups(v, m, m)
    backwards = np.stack([v - 1 - forwards[:, 0], forwards[:, 1]], axis=1)
    rows = [warm_up_then_alternate(forwards, backwards, m * v)] * p
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact for any stages: the forward phase, then the backward phase.

    For equal stages without first, last and hops it is (m + (p - 1) / v) * t with m >= p, else every chunk but one
    waits for micro-batch 0 to come round: (p v + m - 1) * t / v.
    """
    forward = _phase_s(m, times.forward_s, times.first_s, times.hop_s)
    return forward + _phase_s(m, times.backward_s, times.last_s, times.hop_s)


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below: the closed form, which is exact."""
    return closed_form_s(m, times)


def _phase_s(m: int | IntArray, chunk_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """[...] seconds until the last virtual stage is done with all m micro-batches, `chunk_s` [..., ranks, chunks].

    A stage starts when micro-batch 0 arrives and the rank is done with its chunk before. It is done when micro-batch 0
    has come from any stage that has started and m - 1 more have passed the slowest stage on the way.
    """
    p, v = chunk_s.shape[-2:]
    rest = np.asarray(m)[..., None] - 1
    start = np.empty((*np.broadcast_shapes(chunk_s.shape[:-2], rest.shape[:-1]), p * v))
    ends, slowest = np.empty_like(start), np.zeros_like(start)
    free = [edge_s[..., rank] for rank in range(p)]
    for stage in range(p * v):
        rank, chunk = stage % p, stage // p
        seconds, sent = chunk_s[..., rank, chunk], hop_s[..., rank - 1]
        came = slice(0, stage)
        ends[..., came] += sent[..., None]
        start[..., stage] = np.maximum(free[rank], ends[..., came].max(axis=-1, initial=0))
        ends[..., stage] = start[..., stage]
        upto = slice(0, stage + 1)
        ends[..., upto] += seconds[..., None]
        slowest[..., upto] = np.maximum(slowest[..., upto], seconds[..., None])
        free[rank] = np.max(ends[..., upto] + rest * slowest[..., upto], axis=-1)
    done: FloatArray = free[p - 1]
    return done

"""GPipe (Huang et al. 2019): all forwards, then all backwards; also called all-forward-all-backward."""

from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import enter_and_return
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import single_chunk, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "gpipe"
REQUIRES = "ranks >= 1, one chunk a rank, micro-batches >= 1"

bound_terms = enter_and_return


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches; works on numbers and on arrays."""
    is_legal: BoolArray = (np.asarray(p) >= 1) & (np.asarray(v) == 1) & (np.asarray(m) >= 1)
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    units = single_chunk(m)
    rows = [warm_up_then_alternate(units, units, m)] * p
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact for any stages: the forward phase, then the backward phase.

    For equal stages without first, last and hops it is (m + p - 1) * t.
    """
    m, forward_s, backward_s = np.asarray(m)[..., None], times.forward_s[..., 0], times.backward_s[..., 0]
    forward = phase_s(forward_s, m * forward_s, forward_s, times.first_s, times.hop_s)
    return forward + phase_s(backward_s, m * backward_s, backward_s, times.last_s, times.hop_s)


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below: the closed form, which is exact."""
    return closed_form_s(m, times)


def phase_s(
    enter_s: FloatArray, work_s: FloatArray, leave_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray
) -> FloatArray:
    """[...] seconds until the last rank has done all forwards, all arguments [..., ranks].

    The path: the edge of rank i, the first unit of work down to rank k, `enter_s` on each rank, all the work of k, the
    last unit on to the last rank, `leave_s` on each; the longest for any i <= k. Of the backwards it is the same path,
    from its end.
    """
    hops = np.concatenate([np.zeros_like(hop_s[..., :1]), np.cumsum(hop_s[..., :-1], axis=-1)], axis=-1)
    before = np.cumsum(enter_s, axis=-1) - enter_s + hops
    after = np.cumsum(leave_s[..., ::-1], axis=-1)[..., ::-1] - leave_s + hops[..., -1:] - hops
    entered = np.maximum.accumulate(edge_s - before, axis=-1)
    phase: FloatArray = (entered + before + work_s + after).max(axis=-1)
    return phase

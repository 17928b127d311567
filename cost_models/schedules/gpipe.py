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
    forward = _phase_s(m, times.forward_s[..., 0], times.first_s, times.hop_s)
    return forward + _phase_s(m, times.backward_s[..., 0], times.last_s, times.hop_s)


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below: the closed form, which is exact."""
    return closed_form_s(m, times)


def _phase_s(m: int | IntArray, chunk_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """Enter at rank i, pass all ranks to the last, and wait m - 1 times for the slowest of them; worst i."""
    hops = np.concatenate([hop_s[..., :-1], np.zeros_like(hop_s[..., :1])], axis=-1)
    way = np.cumsum((chunk_s + hops)[..., ::-1], axis=-1)[..., ::-1]
    slowest = np.maximum.accumulate(chunk_s[..., ::-1], axis=-1)[..., ::-1]
    phase: FloatArray = (edge_s + way + (np.asarray(m) - 1)[..., None] * slowest).max(axis=-1)
    return phase

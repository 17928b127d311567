"""Seq1F1B (Sun et al. 2024): 1F1B on slices of the sequence, backwards through the slices of a micro-batch in reverse.

Rank i warms up with slices - 1 + p - 1 - i forwards: the backward of a micro-batch begins with its last slice.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules import one_f_one_b
from cost_models.schedules.bounds import BoundTerms, enter_and_return, late_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import sliced, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "seq1f1b"
REQUIRES = "ranks >= 1, one chunk a rank, micro-batches >= 1, slices >= 1"


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray, *, slices: int | IntArray = 1) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches in so many slices; works on numbers and on arrays."""
    return one_f_one_b.legal(p, v, m) & (np.asarray(slices) >= 1)


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int, *, slices: int = 1) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m, slices=slices):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m, slices=slices)
    forwards, backwards = sliced(1, m, slices, slices)
    warm_ups = [min(m * slices, slices - 1 + p - 1 - rank) for rank in range(p)]
    rows = [warm_up_then_alternate(forwards, backwards, warm_up) for warm_up in warm_ups]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m, slices=slices)


def closed_form_s(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> FloatArray:
    """[...] seconds of the step: exact for equal stages and slices with any hops; slices are taken as equally long.

    1F1B of m * slices units that warms up with slices - 1 of them more: (m + (p - 1) / slices) * t without hops, and
    the hops there and back once for each p slices. Attention that grows from slice to slice makes it longer.
    """
    return one_f_one_b.step_s(np.asarray(m) * slices, times.mean_slice(slices), deeper=slices - 1)


def lower_bound_s(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages and slices; exact for equal ones.

    The path is that of 1F1B: a slice of micro-batch 0 comes down, one of the last goes up, loops count as the shortest.
    """
    m, forward_s, backward_s = np.asarray(m), times.slice_forward_s(slices), times.slice_backward_s(slices)
    enter = late_s(forward_s[..., 0, :], forward_s[..., 0, :], times.first_s, times.hop_s)
    leave = late_s(backward_s[..., 0, :], backward_s[..., 0, :], times.last_s, times.hop_s)
    through_s = enter + leave + m[..., None] * times.work_s
    longest_s = times.one_slice(slices, slices - 1).work_s
    shortest = times.one_slice(slices, 0)
    return one_f_one_b.loop_bound_s(m * slices, through_s, shortest, longest_s, deeper=slices - 1)


def bound_terms(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> BoundTerms:
    """The terms of `enter_and_return`."""
    return enter_and_return(m, times, slices=slices)

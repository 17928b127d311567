"""TeraPipe (Li et al. 2021): GPipe on slices of the sequence. All forwards, then all backwards, the slices of a
micro-batch in reverse.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules import gpipe
from cost_models.schedules.bounds import BoundTerms, enter_and_return
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import sliced, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "terapipe"
REQUIRES = "ranks >= 1, one chunk a rank, micro-batches >= 1, slices >= 1"


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray, *, slices: int | IntArray = 1) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches in so many slices; works on numbers and on arrays."""
    return gpipe.legal(p, v, m) & (np.asarray(slices) >= 1)


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int, *, slices: int = 1) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m, slices=slices):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m, slices=slices)
    forwards, backwards = sliced(1, m, slices, slices)
    rows = [warm_up_then_alternate(forwards, backwards, m * slices)] * p
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m, slices=slices)


def closed_form_s(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> FloatArray:
    """[...] seconds of the step: exact for equal slices on any stages, and for any slices on equal stages without
    first and last; no step is below it.

    The forward phase, then the backward phase. The shortest slice comes down to the rank that works through, the
    longest goes on to the last rank. With equal stages and slices it is (m + (p - 1) / slices) * t.
    """
    m, shortest, longest = np.asarray(m)[..., None], times.one_slice(slices, 0), times.one_slice(slices, slices - 1)
    phases = [
        gpipe.phase_s(enter[..., 0], m * whole[..., 0], leave[..., 0], edge_s, times.hop_s)
        for enter, whole, leave, edge_s in (
            (shortest.forward_s, times.forward_s, longest.forward_s, times.first_s),
            (shortest.backward_s, times.backward_s, longest.backward_s, times.last_s),
        )
    ]
    return phases[0] + phases[1]


def lower_bound_s(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> FloatArray:
    """[...] seconds that no step is below: the closed form, which is a path of the action graph."""
    return closed_form_s(m, times, slices=slices)


def bound_terms(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> BoundTerms:
    """The terms of `enter_and_return`."""
    return enter_and_return(m, times, slices=slices)

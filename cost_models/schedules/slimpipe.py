"""SlimPipe (arXiv 2504.14519): interleaved 1F1B on n slices of the sequence; rank i keeps n v + 2 (p - 1 - i) of them.

Slices go p at a time through the chunks of a rank; backwards take chunks and slices in reverse. Where ranks share out
the attention of early and late slices (context exchange), slices are equally long: such times have no attention part.
Memory is in `slimpipe_memory`.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules import interleaved
from cost_models.schedules.bounds import BoundTerms, enter_and_return, late_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.one_f_one_b import loop_bound_s
from cost_models.schedules.order import sliced, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "slimpipe"
REQUIRES = (
    "ranks >= 1, chunks >= 1, micro-batches >= 1, slices >= 1; chunks >= 2 need ranks >= 2 and slices % ranks = 0"
)


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray, *, slices: int | IntArray = 1) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches in so many slices; works on numbers and on arrays."""
    p, v, m, slices = np.asarray(p), np.asarray(v), np.asarray(m), np.asarray(slices)
    in_groups = (v == 1) | ((p >= 2) & (slices % np.maximum(p, 1) == 0))
    is_legal: BoolArray = (p >= 1) & (v >= 1) & (m >= 1) & (slices >= 1) & in_groups
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int, *, slices: int = 1) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m, slices=slices):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m, slices=slices)
    forwards, backwards = sliced(v, m, slices, p)
    warm_ups = [min(len(forwards), slices * v - 1 + 2 * (p - 1 - rank)) for rank in range(p)]
    rows = [warm_up_then_alternate(forwards, backwards, warm_up) for warm_up in warm_ups]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m, slices=slices)


def closed_form_s(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> FloatArray:
    """[...] seconds of the step: exact for equal stages, chunks and slices; slices are taken as equally long.

    Interleaved 1F1B of m * slices units in groups of p: (m + (p - 1) / (slices v)) * t without hops. These are
    2 (p - 1), and with several chunks 2 (v - 1) slices more: every group of the warm-up waits for them at each chunk.
    Attention that grows from slice to slice makes the step longer.
    """
    p = times.ranks
    return interleaved.step_s(np.asarray(m) * slices, times.mean_slice(slices), p, p, groups=slices // p)


def lower_bound_s(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages and slices.

    The path is that of interleaved 1F1B: a slice of micro-batch 0 down to the rank that works through, which has run
    forwards only by then, and one of the last micro-batch up from it. With one chunk it gains by the loops of 1F1B,
    where hops are so long that they outlast the deeper warm-up.
    """
    enter = _late_s(times.slice_forward_s(slices), times.first_s, times.hop_s)
    leave = _late_s(times.slice_backward_s(slices), times.last_s, times.hop_s)
    through_s = enter + np.asarray(m)[..., None] * times.work_s + leave
    if times.chunks > 1:
        bound: FloatArray = through_s.max(axis=-1)
        return bound
    shortest, longest_s = times.one_slice(slices, 0), times.one_slice(slices, slices - 1).work_s
    return loop_bound_s(np.asarray(m) * slices, through_s, shortest, longest_s, deeper=slices - 1, per_rank=2)


def bound_terms(m: int | IntArray, times: StageTimes, *, slices: int = 1) -> BoundTerms:
    """The terms of `enter_and_return`."""
    return enter_and_return(m, times, slices=slices)


def _late_s(slice_s: FloatArray, edge_s: FloatArray, hop_s: FloatArray) -> FloatArray:
    """`late_s` of the slices of a micro-batch, [..., ranks, chunks, slices], one a turn and p turns a chunk."""
    p, v, n = slice_s.shape[-3:]
    if v == 1:
        return late_s(slice_s[..., 0, :], slice_s[..., 0, :], edge_s, hop_s)
    groups = np.moveaxis(slice_s.reshape(*slice_s.shape[:-1], n // p, p), -2, -3)
    turns = groups.reshape(*groups.shape[:-3], -1)
    return late_s(turns, turns, edge_s, hop_s, chunks=v, turns_back=p)

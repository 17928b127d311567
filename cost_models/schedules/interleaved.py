"""Interleaved 1F1B (Narayanan et al. 2021) in groups of N micro-batches: N = p is Megatron's order, any N is Llama 3's.

A rank takes N micro-batches through chunk 0, the same through chunk 1 and so on, then the next N; backwards take the
chunks in reverse. Rank i warms up with (v - 1) N + 2 (p - 1 - i) forwards, then alternates. A larger group hides the
hops and keeps (v - 1) (N - p) more chunks alive; with fewer micro-batches than ranks all of them are one group.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import BoundTerms, edge_excess_s, enter_and_return, late_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import in_groups, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "interleaved"
REQUIRES = (
    "ranks >= 2, chunks >= 2, a group size from min(ranks, micro-batches) to micro-batches, and groups whose rest is "
    "none or at least ranks (a group size of ranks: micro-batches a multiple of ranks, or fewer)"
)


def legal(
    p: int | IntArray, v: int | IntArray, m: int | IntArray, *, group_size: int | IntArray | None = None
) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches in groups of `group_size`, of p or of all if it is None.

    Works on numbers and on arrays. Megatron accepts these sizes as microbatch_group_size_per_vp_stage; with others the
    bubble is longer, with N >= p up to 4.5 times (p <= 8, m <= 16), or ranks wait for each other for ever. Fewer
    micro-batches than ranks, as one group, are Llama 3's.
    """
    p, v, m = np.asarray(p), np.asarray(v), np.asarray(m)
    group = _group(p, m, group_size)
    rest = m % np.maximum(group, 1)
    fits = (group >= np.minimum(p, m)) & (group <= m) & ((rest == 0) | (rest >= p))
    is_legal: BoolArray = (p >= 2) & (v >= 2) & (m >= 1) & fits
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int, *, group_size: int | None = None) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m, group_size=group_size):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m, group_size=group_size)
    return table(p, v, m, int(_group(p, m, group_size)))


def table(p: int, v: int, m: int, group_size: int) -> ActionTable:
    """The action table in groups of any size, legal or not."""
    chunk, micro_batch = in_groups(v, m, group_size).T
    forwards = np.stack([chunk, micro_batch], axis=1)
    backwards = np.stack([v - 1 - chunk, micro_batch], axis=1)
    rows = [
        warm_up_then_alternate(forwards, backwards, min(m * v, (v - 1) * group_size + 2 * (p - 1 - rank)))
        for rank in range(p)
    ]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def closed_form_s(m: int | IntArray, times: StageTimes, *, group_size: int | None = None) -> FloatArray:
    """[...] seconds of the step: exact for equal stages and chunks, an estimate otherwise.

    m * max t + (p - 1) * t / v, what of first and last outlasts the way to its rank, and the way of one micro-batch to
    the last rank and back: 2 (p - 1) hops. v - 1 times the first group comes round to rank 0 before its last
    micro-batch has left it, or it is waited for: p (f + hop) - N f, f being the forward of a chunk; the last group
    likewise in the backwards. So N = p pays every hop of 2 (p v - 1), N >= 2 p no more than 2 (p - 1), and m < p has
    idle ranks. A hop longer than the forward or the backward of a chunk costs more than that: the warm-up is then too
    short to hide it.
    """
    m = np.asarray(m)
    return step_s(m, times, *_groups(times.ranks, m, group_size))


def step_s(
    m: int | IntArray, times: StageTimes, first_group: int | IntArray, last_group: int | IntArray, *, groups: int = 1
) -> FloatArray:
    """[...] seconds of `closed_form_s` with so many micro-batches in the first and in the last group.

    `groups` are those that a rank takes through all chunks before its first backward, and after its last forward.
    """
    work_s = times.work_s
    slowest = work_s.max(axis=-1)
    fill = (work_s.sum(axis=-1) - slowest) / times.chunks
    ways = 2 * times.hop_s[..., :-1].sum(axis=-1)
    trip_s = _wait_s(times.forward_s, times.hop_s, first_group) + _wait_s(times.backward_s, times.hop_s, last_group)
    trips = groups * (times.chunks - 1) * trip_s
    before = edge_excess_s(times.forward_s[..., 0], times.first_s, times.hop_s)
    after = edge_excess_s(times.backward_s[..., 0], times.last_s, times.hop_s)
    total: FloatArray = m * slowest + fill + ways + trips + before + after
    return total


def lower_bound_s(m: int | IntArray, times: StageTimes, *, group_size: int | None = None) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages.

    The path: micro-batch 0 down the virtual stages to chunk c of rank k, which has run N forwards of each earlier chunk
    by then; all the rest of k's work up to the last backward of chunk c', after which the backwards of each earlier
    chunk follow for the micro-batches of the last group; the last micro-batch up again.
    """
    m = np.asarray(m)
    group, last = (size[..., None, None] for size in _groups(times.ranks, m, group_size))
    enter = late_s(times.forward_s, group * times.forward_s, times.first_s, times.hop_s, chunks=times.chunks)
    leave = late_s(times.backward_s, last * times.backward_s, times.last_s, times.hop_s, chunks=times.chunks)
    bound: FloatArray = (enter + m[..., None] * times.work_s + leave).max(axis=-1)
    return bound


def bound_terms(m: int | IntArray, times: StageTimes, *, group_size: int | None = None) -> BoundTerms:
    """The terms of `enter_and_return`, the same for any group size."""
    return enter_and_return(m, times)


def _group(p: int | IntArray, m: int | IntArray, group_size: int | IntArray | None) -> IntArray:
    """[...] the group size that is meant: as many micro-batches as ranks where none is given, as far as there are."""
    return np.minimum(p, m) if group_size is None else np.asarray(group_size)


def _groups(p: int, m: IntArray, group_size: int | None) -> tuple[IntArray, IntArray]:
    """Micro-batches, each [...], of the first and of the last group."""
    group = _group(p, m, group_size)
    return group, (m - 1) % group + 1


def _wait_s(chunk_s: FloatArray, hop_s: FloatArray, group: int | IntArray) -> FloatArray:
    """[...] seconds that rank 0 waits for the first micro-batch of a group to come round to its next chunk."""
    mean_s = chunk_s.mean(axis=-1)
    wait_s: FloatArray = np.maximum(0, (mean_s + hop_s).sum(axis=-1) - group * mean_s.max(axis=-1))
    return wait_s

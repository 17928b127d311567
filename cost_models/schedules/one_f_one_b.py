"""1F1B (PipeDream-Flush, Narayanan et al. 2021): rank i of p warms up with p - 1 - i forwards, then alternates."""

from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import edge_excess_s, enter_and_return, reach_s
from cost_models.schedules.critical_path import PathCoefficients
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.order import single_chunk, warm_up_then_alternate
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "1f1b"
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
    rows = [warm_up_then_alternate(units, units, min(m, p - 1 - rank)) for rank in range(p)]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step: exact for equal stages and hops, an upper bound otherwise.

    (m - 1) * max t + sum t, with f and b the forward and backward of a rank
    + min(m - 1, p - 2) * (max f + max b - max t): warm-up may wait for one rank, draining for another; it is 0 when
      forward has the same share of t on all ranks
    + max(0, max_i(first_i - sum_{j<i} (f_j + hop_j))), and the same of last and b
    + the hops (`hops`), each as slow as the slowest.
    """
    return step_s(m, times)


def step_s(m: int | IntArray, times: StageTimes, *, deeper: int = 0) -> FloatArray:
    """[...] seconds of `closed_form_s` where every rank warms up with `deeper` forwards more than in 1F1B."""
    m, p = np.asarray(m), times.ranks
    f, b, t = times.forward_s[..., 0], times.backward_s[..., 0], times.work_s
    slowest = t.max(axis=-1)
    flow = (m - 1) * slowest + t.sum(axis=-1)
    flow += np.minimum(m - 1, max(p - 2, 0)) * (f.max(axis=-1) + b.max(axis=-1) - slowest)
    edges = edge_excess_s(f, times.first_s, times.hop_s) + edge_excess_s(b, times.last_s, times.hop_s)
    total: FloatArray = flow + edges + hops(p, m - deeper) * times.hop_s[..., :-1].max(axis=-1, initial=0)
    return total


def hops(p: int, m: int | IntArray) -> IntArray:
    """[...] how many hops lie on the critical path of equal stages, the most that lie on any path.

    2 (p - 1) for each p micro-batches begun, as rank 0 keeps p in flight; the r = (m - 1) mod p that are left of the
    last p still go back and forth between the last r ranks.
    """
    rounds, left = np.divmod(np.asarray(m) - 1, p)
    count: IntArray = 2 * (p - 1) * (1 + rounds) + 2 * np.maximum(0, left - 1)
    return count


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages; exact for equal stages and hops.

    The path: micro-batch 0 down to a rank l, l's work, the last micro-batch up again. Meanwhile the path may leave l
    for a window k .. l: on l, forward i is followed by backward i - (p - 1 - l); that backward goes up to k, where
    forward i + d follows, d = l - k + 1, and comes down to l. The loop takes sum_{k..l} t + 2 sum hop in place of
    d * t_l, and fits floor((m - p + l) / d) times; one loop of a smaller window may fit in what is left.
    """
    m = np.asarray(m)
    enter = reach_s(times.forward_s[..., 0], times.first_s, times.hop_s)
    leave = reach_s(times.backward_s[..., 0], times.last_s, times.hop_s)
    through_s = np.stack(enter, axis=-1) + np.stack(leave, axis=-1) + m[..., None] * times.work_s
    return loop_bound_s(m, through_s, times, times.work_s)


def loop_bound_s(
    m: int | IntArray,
    through_s: FloatArray,
    least: StageTimes,
    longest_s: FloatArray,
    *,
    deeper: int = 0,
    per_rank: int = 1,
) -> FloatArray:
    """[...] seconds of `lower_bound_s` for m units, micro-batches or slices, that need not take equally long.

    `through_s` [..., ranks] are the paths that come to a rank, do all its work and go up again. They gain by loops with
    the times of the shortest unit, `least`, in place of units of at most `longest_s` [..., ranks]. The last rank warms
    up with `deeper` forwards, each one before it with `per_rank` more; no loop can take their place.
    """
    bounds = []
    for rank in range(least.ranks):
        room = np.asarray(m) - 1 - deeper - per_rank * (least.ranks - 1 - rank)
        bounds.append(through_s[..., rank] + _loops_s(room, rank, least, longest_s, per_rank))
    bound: FloatArray = np.maximum.reduce(bounds)
    return bound


def _loops_s(room: IntArray, rank: int, times: StageTimes, longest_s: FloatArray, per_rank: int) -> FloatArray:
    """[...] most seconds that loops from `rank` up add to its work, where `room` units can be looped over.

    A loop over d ranks takes the place of 1 + (d - 1) * per_rank units.
    """
    up = slice(rank, None, -1)
    window_s = np.cumsum(times.work_s[..., up], axis=-1)
    window_s[..., 1:] += 2 * np.cumsum(times.hop_s[..., up][..., 1:], axis=-1)
    length = 1 + per_rank * np.arange(rank + 1)
    gain_s = np.maximum(0, window_s - length * longest_s[..., rank, None])
    loops, left = np.divmod(np.maximum(room, 0)[..., None], length)
    # best_s[d]: one loop over at most d ranks; no loop at all, and the window of one rank, gain nothing.
    best_s = np.maximum.accumulate(np.concatenate([np.zeros_like(gain_s[..., :1]), gain_s], axis=-1), axis=-1)
    rest_s = np.take_along_axis(best_s, np.broadcast_to(-(-left // per_rank), gain_s.shape), axis=-1)
    added: FloatArray = (loops * gain_s + rest_s).max(axis=-1)
    return added


def window_paths(m: int, times: StageTimes) -> PathCoefficients:
    """[paths, ...] for each rank k, the longest of the paths that loop through a window of ranks which begins at k.

    `times` are of one assignment; with any other times no path is longer than the step. Ranks with too few
    micro-batches behind them for a loop have none.

    The path: micro-batch 0 goes down to the last rank and comes up to k, whose forward p - k follows. It goes down to
    l, where the backward of another micro-batch comes next (see `lower_bound_s`), and that leads up to k and to the
    forward d = l - k + 1 further on. What is left of the micro-batches after the last whole loop is worked through on
    k; the last micro-batch goes down to the last rank and comes up to rank 0. Where neighbours work equally long,
    these are the critical paths: each loop pays the window's hops.
    """
    p, work_s, hop_s = times.ranks, times.work_s, times.hop_s[:-1]
    first = np.arange(max(0, p + 1 - m), p)
    last = np.arange(p)
    before_s, hops_before_s = np.append(0.0, np.cumsum(work_s)), np.append(0.0, np.cumsum(hop_s))
    loop_s = before_s[last + 1] - before_s[first, None] + 2 * (hops_before_s[last] - hops_before_s[first, None])
    length = last - first[:, None] + 1
    loops, left = np.divmod((m - 1 - p + first)[:, None], np.maximum(length, 1))
    looped_s = np.where(length > 0, loops * loop_s + left * work_s[first, None], -np.inf)
    longest = looped_s.argmax(axis=1)
    chosen = np.arange(len(first)), longest
    inside = (last >= first[:, None]) & (last <= longest[:, None])
    ways = 1 + (last >= first[:, None])
    visits = ways + inside * loops[chosen][:, None] + (last == first[:, None]) * left[chosen][:, None]
    hops = 2 * ways + 2 * (inside & (last < longest[:, None])) * loops[chosen][:, None]
    hops[:, -1] = 0
    cells, ends = visits[..., None].astype(np.float64), np.broadcast_to((last == 0).astype(np.int64), visits.shape)
    return PathCoefficients(cells, cells, cells, ends, ends, hops, 0.0 * cells, 0.0 * cells)

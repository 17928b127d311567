"""DualPipeV: DualPipe folded to a V, one copy of the model (DualPipe's repository, "cut-in-half" schedule of Qi 2025).

Every rank keeps 2p + 1 chunks, half a micro-batch of its layers more than 1F1B. A forward and a backward that run as
an overlapped pair are two actions here, one after the other.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.dual_order import meet_in_the_middle, meeting_bubble_s
from cost_models.schedules.equal_stages import Mean, are_equal, mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import enter_and_stay, table_bound_s
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, v_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "dualpipe-v"
REQUIRES = "ranks >= 2, two chunks a rank, micro-batches >= 2 * ranks"

bound_terms = enter_and_stay


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches; works on numbers and on arrays."""
    p, v, m = np.asarray(p), np.asarray(v), np.asarray(m)
    is_legal: BoolArray = (p >= 2) & (v == 2) & (m >= 2 * p)
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    rows = [meet_in_the_middle(p, rank, m) for rank in range(p)]
    return ActionTable.of(NAME, v_placement(p), rows, micro_batches=m)


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step: for equal chunks without edges and hops, W <= F <= B."""
    f, b, w = mean(times)
    exact: BoolArray = are_equal(times) & (w <= f) & (f <= b) & (np.asarray(m) >= 2 * times.ranks)
    return exact


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise.

    The bubble is `meeting_bubble_s` of the p ranks and the F, B, W of a chunk.
    """
    chunk = Mean(*(seconds / 2 for seconds in mean(times)))
    return step_s(m, times, meeting_bubble_s(times.ranks, chunk))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 2, count), m, times)

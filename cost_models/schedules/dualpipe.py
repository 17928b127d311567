"""DualPipe (DeepSeek-V3 2024): two copies of the model, micro-batches that enter the pipeline at both ends.

Rank i holds stage i as chunk 0 and stage p - 1 - i as chunk 1; even micro-batches go down the ranks, odd ones up.
Every rank keeps p + 1 micro-batches and two stages of parameters. A forward and a backward that run as an overlapped
pair are two actions here, one after the other.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.bounds import BoundTerms
from cost_models.schedules.dual_order import meet_in_the_middle, meeting_bubble_s
from cost_models.schedules.equal_stages import Mean, are_equal, mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import table_bound_s
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, two_way_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "dualpipe"
REQUIRES = "an even number of ranks, two chunks (copies) a rank, an even number of micro-batches >= 2 * ranks"


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches; works on numbers and on arrays."""
    p, v, m = np.asarray(p), np.asarray(v), np.asarray(m)
    is_legal: BoolArray = (p >= 2) & (p % 2 == 0) & (v == 2) & (m % 2 == 0) & (m >= 2 * p)
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    rows = [_rows(p, rank, m) for rank in range(p)]
    return ActionTable.of(NAME, two_way_placement(p), rows, micro_batches=m)


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step: for equal stages without edges and hops, W <= F <= B."""
    f, b, w = mean(times)
    exact: BoolArray = are_equal(times) & (w <= f) & (f <= b) & (np.asarray(m) >= 2 * times.ranks)
    return exact


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise.

    A rank runs half of the micro-batches through each of its stages; the bubble is `meeting_bubble_s` of half the
    ranks and the F, B, W of a stage.
    """
    stage = Mean(*(seconds / 2 for seconds in mean(times)))
    return step_s(np.asarray(m) // 2, times, meeting_bubble_s(times.ranks // 2, stage))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 2, count), m, times)


def bound_terms(m: int | IntArray, times: StageTimes) -> BoundTerms:
    """The terms of the bound max_i(first_i + m / 2 t_i + last_i).

    No way to a rank is in them: which of its chunks the first micro-batch enters by depends on the rank's half.
    """
    nothing = np.zeros_like(times.first_s)
    work_s = times.first_s + np.asarray(m)[..., None] / 2 * times.work_s + times.last_s
    return BoundTerms(edge_s=nothing, pass_s=nothing, work_s=work_s)


def _rows(p: int, rank: int, m: int) -> IntArray:
    """Rows (kind, chunk, micro-batch, slice) of one rank: each half of the ranks is a V seen from its own end."""
    in_second_half = rank >= p // 2
    rows = meet_in_the_middle(p // 2, p - 1 - rank if in_second_half else rank, m // 2)
    if in_second_half:
        rows[:, 1] = 1 - rows[:, 1]
    rows[:, 2] = 2 * rows[:, 2] + rows[:, 1]
    return rows

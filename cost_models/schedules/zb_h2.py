"""ZB-H2 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism"): twice the warm-up of ZB-H1, so that no rank ever waits.

Every rank keeps 2p - 1 micro-batches. The ranks start and end one forward after the other: the step of one rank has no
bubble, the span of all has (p - 1) F.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.equal_stages import are_equal, mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import enter_and_stay, table_bound_s
from cost_models.schedules.split_order import warm_up_then_split
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "zb-h2"
REQUIRES = "ranks >= 1, one chunk a rank, micro-batches >= 1"

bound_terms = enter_and_stay


def legal(p: int | IntArray, v: int | IntArray, m: int | IntArray) -> BoolArray:
    """Whether p ranks of v chunks can run m micro-batches; works on numbers and on arrays."""
    is_legal: BoolArray = (np.asarray(p) >= 1) & (np.asarray(v) == 1) & (np.asarray(m) >= 1)
    return is_legal


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    rows = [warm_up_then_split(m, 2 * (p - 1 - rank), 2 * rank) for rank in range(p)]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step: for equal ranks without edges and hops, and m >= 2p - 1."""
    exact: BoolArray = are_equal(times) & (np.asarray(m) >= 2 * times.ranks - 1)
    return exact


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise; with m < 2p - 2 it is too short.

    The bubble is (p - 1) max(F, F + B - 2W, B - F): the first where B <= 2W and B <= 2F. The published
    (p - 1) (F + B - 2W) leaves out that the ranks start one after the other.
    """
    f, b, w = mean(times)
    return step_s(m, times, (times.ranks - 1) * np.maximum.reduce([f, f + b - 2 * w, b - f]))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 1, count), m, times)

"""ZB-H1 (Qi et al. 2024, "Zero Bubble Pipeline Parallelism"): 1F1B with weight gradients that fill the drain.

Rank i of p warms up like 1F1B and keeps i weight gradients back, so that all ranks keep as much as rank 0 of 1F1B:
p - i micro-batches before their input gradient and i before their weight gradient.
"""

from functools import lru_cache

import numpy as np

from cost_models.schedules.equal_stages import are_equal, mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import enter_and_stay, table_bound_s
from cost_models.schedules.split_order import warm_up_then_split
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, looped_placement
from cost_models.schedules.times import FloatArray, StageTimes

NAME = "zb-h1"
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
    rows = [warm_up_then_split(m, p - 1 - rank, rank) for rank in range(p)]
    return ActionTable.of(NAME, looped_placement(p, v), rows, micro_batches=m)


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step: for equal ranks without edges and hops, and m >= p."""
    exact: BoolArray = are_equal(times) & (np.asarray(m) >= times.ranks)
    return exact


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise; with m < p it is too short.

    The bubble is (p - 1) max(F + B - W, F, B), the first of them (the published one) where W <= B and W <= F.
    """
    f, b, w = mean(times)
    return step_s(m, times, (times.ranks - 1) * np.maximum.reduce([f + b - w, f, b]))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 1, count), m, times)

"""V-Half (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V placement in half the memory of 1F1B.

Every rank keeps at most p + 2 chunks, p / 2 + 1 micro-batches of its layers.
"""

from functools import lru_cache

from cost_models.schedules.equal_stages import mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import enter_and_stay, table_bound_s
from cost_models.schedules.table import ActionTable, BoolArray, IntArray
from cost_models.schedules.times import FloatArray, StageTimes
from cost_models.schedules.v_order import Block, controlled_bubble_s, fits_a_v, reaches_peak, squeezed_table

NAME = "v-half"
REQUIRES = "ranks >= 2, two chunks a rank, micro-batches >= 1"

EVEN = Block(hops=((1, 2), (1, 2), (2, 1), (2, 1)), turns=(2, 4, 1))
ODD = Block(hops=((2, 1), (2, 1), (1, 2), (2, 1)), turns=(1, 2, 2))
"""Blocks for even and odd numbers of ranks, found by search: the shortest steps at this peak, whose bubble does not
grow with m where F, B and W differ."""

bound_terms = enter_and_stay
legal = fits_a_v


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    return squeezed_table(NAME, ODD if p % 2 else EVEN, p, m)


def peak_chunks(p: int) -> int:
    """Most chunks of a micro-batch that a rank ever keeps."""
    return p + 2


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step (`reaches_peak`)."""
    return reaches_peak(m, times, peak_chunks(times.ranks))


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise; with fewer m it is too short.

    The bubble is `controlled_bubble_s` at the peak. Where p is odd, it is two units of a chunk longer: the published
    formula holds for even p only.
    """
    p = times.ranks
    return step_s(m, times, controlled_bubble_s(p, peak_chunks(p), mean(times), excess=2 * (p % 2)))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 2, count), m, times)

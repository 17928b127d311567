"""V-Min (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V placement in a third of 1F1B's memory.

Micro-batches go through the V without any wait, so that a rank keeps about 2p / 3 + 2 chunks, p / 3 + 1 micro-batches
of its layers. The price: where forwards and gradients do not last equally long, and for every hop, each micro-batch
waits a little for the one before, so that the bubble grows with m. Of equal ranks a micro-batch takes six times the
longer of a chunk's forward and input gradient, and up to six hops.
"""

from functools import lru_cache

from cost_models.schedules.equal_stages import mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import enter_and_stay, table_bound_s
from cost_models.schedules.table import ActionTable, BoolArray, IntArray
from cost_models.schedules.times import FloatArray, StageTimes
from cost_models.schedules.v_order import Block, controlled_bubble_s, fits_a_v, reaches_peak, squeezed_table

NAME = "v-min"
REQUIRES = "ranks >= 2, two chunks a rank, micro-batches >= 1"

AT_ONCE = ((1, 1), (1, 1), (1, 1), (1, 1))
BLOCKS = (Block(AT_ONCE, turns=(1, 3, 1)), Block(AT_ONCE, turns=(1, 1, 1)), Block(AT_ONCE, turns=(1, 5, 1)))
"""By p % 3: turns that bring no two actions of a rank to the same unit.

The first two are the published ones. Where p % 3 is 2, (1, 1, 1) is published too; turning four units later keeps no
more and shortens the bubble by four units.
"""

bound_terms = enter_and_stay
legal = fits_a_v


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`."""
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    return squeezed_table(NAME, BLOCKS[p % 3], p, m)


def peak_chunks(p: int) -> int:
    """Most chunks of a micro-batch that a rank ever keeps: 2p / 3 + 2, rounded to even."""
    return 2 * ((p + 1) // 3 + 1)


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step (`reaches_peak`)."""
    return reaches_peak(m, times, peak_chunks(times.ranks))


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise (`controlled_bubble_s` at the peak)."""
    p = times.ranks
    return step_s(m, times, controlled_bubble_s(p, peak_chunks(p), mean(times)))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 2, count), m, times)

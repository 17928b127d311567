"""ZB-V (Qi et al. 2024, "Pipeline Parallelism with Controllable Memory"): the V placement in the memory of 1F1B.

Every rank keeps 2p chunks, p micro-batches of its layers, and with F = B = W no rank waits once it has begun.
"""

from collections.abc import Iterator
from functools import lru_cache

import numpy as np

from cost_models.schedules.equal_stages import are_equal, mean, step_s
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.split_bounds import enter_and_stay, table_bound_s
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind, v_placement
from cost_models.schedules.times import FloatArray, StageTimes
from cost_models.schedules.v_order import fits_a_v

NAME = "zb-v"
REQUIRES = "ranks >= 2, two chunks a rank, micro-batches >= 1"

bound_terms = enter_and_stay
legal = fits_a_v


@lru_cache(maxsize=64)
def actions(p: int, v: int, m: int) -> ActionTable:
    """The action table. Raises IllegalScheduleError unless `legal`.

    Fewer than 2p - 1 micro-batches run in the order of the first m of 2p - 1.
    """
    if not legal(p, v, m):
        raise IllegalScheduleError.of(NAME, REQUIRES, p, v, m)
    rows = [_rows(p, rank, m) for rank in range(p)]
    return ActionTable.of(NAME, v_placement(p), rows, micro_batches=m)


def is_exact(m: int | IntArray, times: StageTimes) -> BoolArray:
    """[...] whether the closed form is the simulated step.

    For equal chunks without edges and hops, F <= B, W <= B and m >= 2p - 1.
    """
    f, b, w = mean(times)
    long_enough = np.asarray(m) >= 2 * times.ranks - 1
    exact: BoolArray = are_equal(times) & (f <= b) & (w <= b) & long_enough
    return exact


def closed_form_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds of the step, exact where `is_exact`, an estimate otherwise.

    The bubble is (p - 1) / 2 * max(B, 2 (B - W)); with F = B = W that is (p - 1) F / 2, the way down to the last rank.
    """
    _, b, w = mean(times)
    return step_s(m, times, (times.ranks - 1) / 2 * np.maximum(b, 2 * (b - w)))


def lower_bound_s(m: int | IntArray, times: StageTimes) -> FloatArray:
    """[...] seconds that no step is below, whatever the stages (`table_bound_s`)."""
    return table_bound_s(lambda count: actions(times.ranks, 2, count), m, times)


def _rows(p: int, rank: int, m: int) -> IntArray:
    """Rows (kind, chunk, micro-batch, slice) of one rank: `_order`, each kind and chunk counting its micro-batches."""
    order = np.array(list(_order(p, rank, max(m, 2 * p - 1))))
    micro_batch = np.zeros(len(order), dtype=np.int64)
    for alike in (np.flatnonzero((order == one).all(axis=1)) for one in np.unique(order, axis=0)):
        micro_batch[alike] = np.arange(len(alike))
    rows = np.column_stack([order, micro_batch, np.zeros_like(micro_batch)])
    return rows[micro_batch < m]


def _order(p: int, rank: int, m: int) -> Iterator[tuple[Kind, int]]:
    """Kinds and chunks of m >= 2p - 1 micro-batches on one rank."""
    down, up = 0, 1
    forward = {chunk: (Kind.FORWARD, chunk) for chunk in (down, up)}
    input_grad = {chunk: (Kind.INPUT_GRAD, chunk) for chunk in (down, up)}
    weight_grad = {chunk: (Kind.WEIGHT_GRAD, chunk) for chunk in (down, up)}
    yield from [forward[down]] * (2 * (p - rank) - 1)
    yield from [forward[up], forward[down]] * rank
    yield from [forward[up], input_grad[up], weight_grad[up]] * (p - rank)
    begun = 2 * p - 1 - rank
    whole_down, whole_up = [input_grad[down], weight_grad[down]], [forward[up], input_grad[up], weight_grad[up]]
    yield from [forward[down], *whole_down, *whole_up] * (m - begun)
    yield from [*whole_down, *whole_up] * (begun - p)
    yield from [input_grad[down], input_grad[up]] * rank
    yield from whole_down * (p - rank)
    yield from [weight_grad[up]] * rank
    yield from [weight_grad[down]] * rank

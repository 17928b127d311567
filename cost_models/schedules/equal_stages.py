"""The form of the closed forms of schedules with a split backward: exact where all ranks are equal."""

from typing import NamedTuple

import numpy as np

from cost_models.schedules.bounds import edge_excess_s
from cost_models.schedules.table import BoolArray, IntArray
from cost_models.schedules.times import FloatArray, StageTimes


class Mean(NamedTuple):
    """F, B and W: seconds of all chunks of a rank together, the mean over the ranks; each [...]."""

    forward_s: FloatArray
    input_grad_s: FloatArray
    weight_grad_s: FloatArray


def mean(times: StageTimes) -> Mean:
    """F, B and W of these times."""
    parts = (times.forward_s, times.input_grad_s, times.weight_grad_s)
    return Mean(*(seconds.sum(axis=-1).mean(axis=-1) for seconds in parts))


def step_s(m: int | IntArray, times: StageTimes, bubble_s: FloatArray) -> FloatArray:
    """[...] seconds of m micro-batches on the slowest rank, the bubble, edges, and the hops of one way down and back.

    Exact where the bubble is, for equal ranks without edges and hops; an estimate otherwise.
    """
    edges = edge_excess_s(times.forward_s[..., 0], times.first_s, times.hop_s) + times.last_s.max(axis=-1)
    hops = 2 * times.hop_s[..., :-1].sum(axis=-1)
    total: FloatArray = m * times.work_s.max(axis=-1) + bubble_s + edges + hops
    return total


def are_equal(times: StageTimes) -> BoolArray:
    """[...] whether all ranks and chunks are equal and have neither edges nor hops."""
    cells = (times.forward_s, times.input_grad_s, times.weight_grad_s)
    same = [np.all(np.isclose(cell, cell[..., :1, :1], rtol=1e-12, atol=0), axis=(-2, -1)) for cell in cells]
    ranks = [np.all(rank == 0, axis=-1) for rank in (times.first_s, times.last_s, times.hop_s[..., :-1])]
    equal: BoolArray = np.logical_and.reduce([*same, *ranks])
    return equal

"""The order that GPipe, 1F1B and interleaved 1F1B share: forwards to warm up, then one forward, one backward."""

import numpy as np

from cost_models.schedules.table import IntArray, Kind


def warm_up_then_alternate(forwards: IntArray, backwards: IntArray, warm_up: int) -> IntArray:
    """Rows (kind, chunk, micro-batch, slice) of one rank.

    `forwards` and `backwards` are [n, 2] arrays of (chunk, micro-batch) in their own order. The first `warm_up`
    forwards run alone, then forward and backward take turns, then the backwards that are left drain.
    """
    n = len(forwards)
    number = np.arange(n)
    forward_at = number + np.maximum(0, number - warm_up)
    backward_at = np.minimum(warm_up + 2 * number + 1, n + number)
    rows = np.zeros((2 * n, 4), dtype=np.int32)
    rows[forward_at, 0], rows[forward_at, 1:3] = Kind.FORWARD, forwards
    rows[backward_at, 0], rows[backward_at, 1:3] = Kind.BACKWARD, backwards
    return rows


def single_chunk(micro_batches: int) -> IntArray:
    """[m, 2] rows (chunk 0, micro-batch), in order."""
    return np.stack([np.zeros(micro_batches, dtype=np.int32), np.arange(micro_batches, dtype=np.int32)], axis=1)

"""The orders that schedules share: forwards to warm up, then one forward, one backward; chunk by chunk in groups."""

import numpy as np

from cost_models.schedules.table import IntArray, Kind


def warm_up_then_alternate(forwards: IntArray, backwards: IntArray, warm_up: int) -> IntArray:
    """Rows (kind, chunk, micro-batch, slice) of one rank.

    `forwards` and `backwards` are [n, 2] arrays of (chunk, micro-batch), or [n, 3] with the slice too, in their own
    order. The first `warm_up` forwards run alone, then forward and backward take turns, then the backwards that are
    left drain.
    """
    n = len(forwards)
    number = np.arange(n)
    forward_at = number + np.maximum(0, number - warm_up)
    backward_at = np.minimum(warm_up + 2 * number + 1, n + number)
    rows = np.zeros((2 * n, 4), dtype=np.int32)
    unit = slice(1, 1 + forwards.shape[1])
    rows[forward_at, 0], rows[forward_at, unit] = Kind.FORWARD, forwards
    rows[backward_at, 0], rows[backward_at, unit] = Kind.BACKWARD, backwards
    return rows


def single_chunk(micro_batches: int) -> IntArray:
    """[m, 2] rows (chunk 0, micro-batch), in order."""
    return np.stack([np.zeros(micro_batches, dtype=np.int32), np.arange(micro_batches, dtype=np.int32)], axis=1)


def in_groups(chunks: int, units: int, group: int) -> IntArray:
    """[chunks * units, 2] rows (chunk, unit): `group` units through chunk 0, the same through chunk 1 and so on, then
    the next ones. What is left over is a smaller group.

    >>> in_groups(2, 3, 2).tolist()
    [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [1, 2]]
    """
    turn, within = np.divmod(np.arange(chunks * units), group * chunks)
    chunk, position = np.divmod(within, np.minimum(group, units - turn * group))
    return np.stack([chunk, turn * group + position], axis=1)


def sliced(chunks: int, micro_batches: int, slices: int, group: int) -> tuple[IntArray, IntArray]:
    """Forwards and backwards, each [chunks * micro_batches * slices, 3] rows (chunk, micro-batch, slice) in `in_groups`
    of so many slices. Backwards take the chunks, and the slices of a micro-batch, in reverse.
    """
    chunk, unit = in_groups(chunks, micro_batches * slices, group).T
    micro_batch, part = np.divmod(unit, slices)
    forwards = np.stack([chunk, micro_batch, part], axis=1)
    backwards = np.stack([chunks - 1 - chunk, micro_batch, slices - 1 - part], axis=1)
    return forwards, backwards

"""The order of the zero-bubble schedules with one chunk a rank: weight gradients wait, to fill what would be idle."""

import numpy as np

from cost_models.schedules.table import IntArray, Kind


def warm_up_then_split(m: int, warm_up: int, delay: int) -> IntArray:
    """Rows (kind, chunk, micro-batch, slice) of one rank.

    `warm_up` forwards run alone; then forward and input gradient take turns, followed by the oldest weight gradient
    whenever more than `delay` of them are due. What is due when the input gradients are through comes last.
    """
    number = np.arange(m)
    # Rows sort by the turn they belong to, and within it: forward, input gradient, weight gradient.
    turn = np.concatenate([np.maximum(0, number - warm_up), number, np.minimum(number + delay, m)])
    kind = np.repeat([Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD], m)
    micro_batch = np.tile(number, 3)
    order = np.lexsort([micro_batch, kind, turn])
    none = np.zeros(3 * m, dtype=np.int64)
    return np.stack([kind, none, micro_batch, none], axis=1)[order]

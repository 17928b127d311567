"""The order that DualPipe and DualPipeV share (DeepSeek-V3 2024): forwards of one way beside backwards of the other."""

from collections import deque

import numpy as np

from cost_models.schedules.equal_stages import Mean
from cost_models.schedules.table import IntArray, Kind
from cost_models.schedules.times import FloatArray


class _Rank:
    """The actions of one rank as they are put down; micro-batches of each way come in order."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, int, int]] = []
        self.begun, self.ended = [0, 0], [0, 0]
        self.due: deque[tuple[int, int]] = deque()

    def forward(self, way: int) -> None:
        self.rows.append((Kind.FORWARD, way, self.begun[way], 0))
        self.begun[way] += 1

    def backward(self, way: int, *, split: bool = False) -> None:
        self.rows.append((Kind.INPUT_GRAD if split else Kind.BACKWARD, way, self.ended[way], 0))
        if split:
            self.due.append((way, self.ended[way]))
        self.ended[way] += 1

    def weight(self) -> None:
        self.rows.append((Kind.WEIGHT_GRAD, *self.due.popleft(), 0))


def meet_in_the_middle(p: int, rank: int, m: int) -> IntArray:
    """Rows (kind, way, micro-batch, slice) of one rank, where both ways have m >= 2 p micro-batches.

    Way 0 comes from rank 0 and way 1 back from rank p - 1. Whoever is far from the middle, where the ways meet, starts
    with way 0 alone and fills its waits with weight gradients. From then on a forward of one way and a backward of the
    other run as a pair, one after the other here. Half of the last backwards are split, to drain faster.
    """
    actions, far = _Rank(), p - 1 - rank
    for _ in range(2 * far):
        actions.forward(0)
    for _ in range(rank + 1):
        actions.forward(0)
        actions.forward(1)
    for _ in range(far):
        actions.backward(1, split=True)
        actions.weight()
        actions.forward(1)
    for _ in range(m - 2 * p + rank + 1):
        _pairs(actions, 2)
    for _ in range(far):
        actions.backward(1)
        _pairs(actions, 1)
    for number in range(2 * (rank + 1)):
        actions.backward(1 - number % 2, split=number > rank)
    for _ in range(far):
        actions.weight()
        actions.backward(0, split=True)
    while actions.due:
        actions.weight()
    return np.array(actions.rows)


def _pairs(actions: _Rank, count: int) -> None:
    """The last `count` of: forward of way 0 with backward of way 1, forward of way 1 with backward of way 0."""
    for way in range(2 - count, 2):
        actions.forward(way)
        actions.backward(1 - way)


def meeting_bubble_s(p: int, chunk: Mean) -> FloatArray:
    """[...] seconds of the bubble of p equal ranks with the F, B and W of a chunk, where W <= F <= B.

    It is max((p - 1) (F + B - W), (p - 1) (2B - W) - F). The published (p - 1) (F&B + B + W - 3W) lets both outputs of
    an overlapped pair leave at its end; with F&B = F + B + W that is (p - 1) B more.
    """
    f, b, w = chunk
    bubble: FloatArray = np.maximum((p - 1) * (f + b - w), (p - 1) * (2 * b - w) - f)
    return bubble

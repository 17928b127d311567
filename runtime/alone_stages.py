"""One layer as a stage in the middle of a pipeline, both ways: with what its hops take of the rank itself.

Ranks are neighbours in pairs, each in front of the other and behind it: what one sends the other receives, a repetition
before it is asked for, so that none waits. Sizes and `detail` are those of layers that one rank has for itself.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.pipelining.schedules import _batch_p2p, _wait_batch_p2p

from runtime.alone import Alone, Maker, Sizes
from runtime.alone_layers import bytes_of_layers, layers_alone
from runtime.alone_links import group_of
from runtime.pipeline import pipeline_stage
from runtime.sharding import Policy, ShardedChunk
from runtime.stage import Stage

__all__ = ["MAKERS"]

# Each rank holds one of the two stages in the middle of four: both its neighbours are the other rank.
STAGES, MIDDLE = 4, (2, 1)
# Repetitions between the posting of a receive and the use of what it brings; micro-batches that are told apart.
AHEAD, MICRO_BATCHES = 2, 4
# Sends that may be on their way.
MOST_SENDS = 8


class Neighbour:
    """A stage that works as its neighbours do, a micro-batch at a time."""

    def __init__(self, stage: Stage) -> None:
        self._stage, self._number = stage, 0
        self._forward: deque[Any] = deque()
        self._backward: deque[Any] = deque()
        self._sends: deque[Any] = deque()
        for micro_batch in range(AHEAD):  # nobody sends what is read first
            stage.draw(micro_batch)

    def run(self) -> None:
        """A micro-batch forward and backward, received from one side and sent to the other."""
        stage, now = self._stage, self._number % MICRO_BATCHES
        later, received = (self._number + AHEAD) % MICRO_BATCHES, self._number >= AHEAD
        self._number += 1
        self._forward.append(_batch_p2p(stage.get_fwd_recv_ops(later)))
        if received:
            _wait_batch_p2p(self._forward.popleft())
        stage.forward_one_chunk(now, (), {}, save_forward_output=False)
        self._send(stage.get_fwd_send_ops(now))
        self._backward.append(_batch_p2p(stage.get_bwd_recv_ops(later)))
        if received:
            _wait_batch_p2p(self._backward.popleft())
        stage.backward_one_chunk(now)
        self._send(stage.get_bwd_send_ops(now))

    def _send(self, operations: Sequence[Any]) -> None:
        self._sends.append(_batch_p2p(list(operations)))
        while len(self._sends) > MOST_SENDS:
            _wait_batch_p2p(self._sends.popleft())


def _both_ways(sizes: Sizes, detail: Sizes, device: torch.device) -> Alone:
    root, inputs = layers_alone(sizes, detail, device)
    size = bytes_of_layers(root, inputs)
    if device.type == "meta":
        return Alone(lambda: None, size)
    boundary = torch.empty_like(inputs, device="meta").requires_grad_()
    chunk = ShardedChunk(root, Policy(reduces_each_micro_batch=False, reshards=False))
    index = MIDDLE[dist.get_rank() % 2]
    stage = pipeline_stage(
        chunk, index, STAGES, inputs=boundary, output=boundary, device=device, group=group_of(len(MIDDLE))
    )
    stage.prepare(MICRO_BATCHES)
    return Alone(Neighbour(stage).run, size)


MAKERS: Mapping[str, Maker] = {"stage_both_ways": _both_ways}

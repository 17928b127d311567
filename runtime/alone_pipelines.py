"""Whole pipelines of two neighbours, alone: the same layers in one chunk a rank, and in a chunk a layer.

What a hop takes of a rank shows in no stage by itself: receives are posted late, threads that move bytes take the
processor from layers, and ranks wait for each other's slow moments. So the schedules of a run are timed with nothing
but layers in them: neither embedding nor head, loss, reduction or optimizer. Sizes are the tokens of a micro-batch,
`detail` those of layers that one rank has for itself, as many as each rank holds.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from cost_models import schedules
from runtime.alone import COMPUTE, Alone, Maker, Sizes
from runtime.alone_layers import bytes_of_layers, layers_alone, own_layers
from runtime.alone_links import group_of
from runtime.pipeline import TableSchedule, pipeline_stage
from runtime.sharding import Policy, ShardedChunk
from runtime.stage import Stage

__all__ = ["MAKERS"]

NEIGHBOURS, MICRO_BATCHES = 2, 4


class _InTheMiddle(ShardedChunk):
    """Layers with others in front of them, whose gradients pile up for as long as they are asked."""

    def forward(self, inputs: Tensor, **named: Any) -> Tensor:
        return super().forward(inputs if inputs.requires_grad else inputs.detach().requires_grad_(), **named)

    def collect_gradients(self, *, last: bool) -> None:
        super().collect_gradients(last=False)


class _Given(torch.autograd.Function):
    """A loss of nothing, whose gradient is given: what comes behind the last layer takes no time."""

    @staticmethod
    def forward(context: Any, output: Tensor, gradient: Tensor) -> Tensor:
        context.gradient = gradient
        return output.new_zeros(())

    @staticmethod
    def backward(context: Any, *_: Any) -> Any:
        return context.gradient, None


def _pipeline(sizes: Sizes, detail: Sizes, device: torch.device, *, schedule: str, layer_a_chunk: bool) -> Alone:
    root, inputs = layers_alone(sizes, detail, torch.device("meta"))
    size = bytes_of_layers(root, inputs.expand(MICRO_BATCHES, *inputs.shape))
    if device.type == "meta":
        return Alone(lambda: None, size)
    chunks = len(root) if layer_a_chunk else 1
    table = schedules.actions(schedule, NEIGHBOURS, chunks, MICRO_BATCHES)
    rank, group = dist.get_rank() % NEIGHBOURS, group_of(NEIGHBOURS)
    per_chunk = (*detail[:-2], len(root) // chunks, detail[-1])
    stages = [
        _stage(own_layers(per_chunk, device), index, NEIGHBOURS * chunks, inputs, device, group)
        for index, place in enumerate(table.placement.rank.tolist())
        if place == rank
    ]
    whole = torch.randn(MICRO_BATCHES * inputs.shape[0], *inputs.shape[1:], device=device).to(COMPUTE)
    given = (whole,) if any(stage.is_first for stage in stages) else ()
    target = whole if any(stage.is_last for stage in stages) else None
    pipeline = TableSchedule(table, stages, _Given.apply)

    def run() -> None:
        pipeline.step(*given, target=target, losses=[], return_outputs=False)
        dist.barrier(group)  # the step is over for both at once

    return Alone(run, size)


def _stage(
    layers: nn.Sequential, index: int, stages: int, boundary: Tensor, device: torch.device, group: dist.ProcessGroup
) -> Stage:
    chunk = _InTheMiddle(layers, Policy(reduces_each_micro_batch=False, reshards=False))
    return pipeline_stage(chunk, index, stages, inputs=boundary, output=boundary, device=device, group=group)


MAKERS: Mapping[str, Maker] = {
    "pipeline_1f1b": partial(_pipeline, schedule="1f1b", layer_a_chunk=False),
    "pipeline_interleaved": partial(_pipeline, schedule="interleaved", layer_a_chunk=True),
}

"""The plan's action table as a schedule of torch.distributed.pipelining, which runs it."""

from collections import Counter
from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import (
    _Action,
    _add_send_recv,
    _ComputationType,
    _PipelineContext,
    _PipelineScheduleRuntime,
)

from cost_models.schedules.table import ActionTable, Kind
from runtime.sharding import ShardedChunk
from runtime.stage import Stage

__all__ = ["TableSchedule", "actions_of", "pipeline_stage"]

KINDS = {
    Kind.FORWARD: _ComputationType.FORWARD,
    Kind.BACKWARD: _ComputationType.FULL_BACKWARD,
    Kind.INPUT_GRAD: _ComputationType.BACKWARD_INPUT,
    Kind.WEIGHT_GRAD: _ComputationType.BACKWARD_WEIGHT,
}
UNSHARD, REDUCE = _ComputationType.UNSHARD, _ComputationType.REDUCE_GRAD


class TableSchedule(_PipelineScheduleRuntime):
    """An action table that torch's pipeline runtime executes. One step: `step(tokens, target=..., losses=[])`."""

    def __init__(
        self, table: ActionTable, stages: Sequence[PipelineStage], loss: Callable[[Tensor, Tensor], Tensor]
    ) -> None:
        # The loss already is the micro-batch's share, so nothing is left to scale.
        super().__init__(list(stages), table.micro_batches, loss_fn=loss, scale_grads=False)
        self._chunks: dict[int, ShardedChunk] = {stage.stage_index: stage.submod for stage in stages}
        rank_of = dict(enumerate(table.placement.rank.tolist()))
        lowered = _add_send_recv(actions_of(table), stage_to_rank=rank_of.__getitem__, num_stages=len(rank_of))
        self._prepare_schedule_with_comms(lowered, format="compute_comms")
        self.register_custom_function(UNSHARD, self._unshard)
        self.register_custom_function(REDUCE, self._collect_gradients)

    def _unshard(self, action: _Action, _: _PipelineContext) -> None:
        self._chunks[action.stage_index].unshard()

    def _collect_gradients(self, action: _Action, _: _PipelineContext) -> None:
        last = self.backward_counter[action.stage_index] == self._n_microbatches
        self._chunks[action.stage_index].collect_gradients(last=last)


def actions_of(table: ActionTable) -> dict[int, list[_Action]]:
    """The actions of each rank in torch's terms.

    Split backwards reach the weights behind FSDP2's back, so weights are gathered before each half and gradients are
    collected after the second; whole backwards are followed by FSDP2 itself, and only their last one is collected.
    """
    stage_of = table.placement.stage_of()
    found: dict[int, list[_Action]] = {}
    for rank in range(table.ranks):
        done: Counter[int] = Counter()
        rows: list[_Action] = []
        for action in table.rank_actions(rank):
            stage = int(stage_of[rank, action.chunk])
            if action.kind in (Kind.INPUT_GRAD, Kind.WEIGHT_GRAD):
                rows.append(_Action(stage, UNSHARD, None))
            rows.append(_Action(stage, KINDS[action.kind], action.micro_batch))
            done[stage] += action.kind in (Kind.BACKWARD, Kind.WEIGHT_GRAD)
            if action.kind is Kind.WEIGHT_GRAD or (action.kind is Kind.BACKWARD and done[stage] == table.micro_batches):
                rows.append(_Action(stage, REDUCE, None))
        found[rank] = rows
    return found


def pipeline_stage(
    chunk: ShardedChunk,
    index: int,
    stages: int,
    *,
    inputs: Tensor,
    output: Tensor,
    device: torch.device,
    group: dist.ProcessGroup,
) -> Stage:
    """The stage of a chunk; `inputs` and `output` are meta tensors of one micro-batch, so that none asks its peers."""
    return Stage(chunk, index, stages, device, input_args=(inputs,), output_args=(output,), group=group)

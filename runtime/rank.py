"""One rank of a job: its chunks, their states and its schedule. Any rank can be built, on any device."""

from dataclasses import dataclass

import torch
from torch import Tensor

from cost_models.specs.parameters import padded_vocab
from planner.document.job import Job, VirtualStage, action_table, virtual_stages
from runtime.chunk import chunk_of
from runtime.constants import Constants
from runtime.groups import Groups, groups_of
from runtime.loss import loss_function
from runtime.pipeline import TableSchedule, pipeline_stage
from runtime.precision import Precision
from runtime.sharding import ShardedChunk, shard

__all__ = ["Rank", "build", "materialize"]


@dataclass(frozen=True)
class Rank:
    """What one rank holds and runs."""

    job: Job
    groups: Groups
    stages: tuple[VirtualStage, ...]
    """Those that this rank holds, in the order of the model."""
    chunks: tuple[ShardedChunk, ...]
    schedule: TableSchedule
    device: torch.device

    @property
    def has_embedding(self) -> bool:
        return self.stages[0].index == 0

    @property
    def has_head(self) -> bool:
        return self.stages[-1].index == self.job.layout.pp * self.job.layout.vpp - 1


def build(job: Job, precision: Precision, device: torch.device, constants: Constants) -> Rank:
    """This rank of a job, its parameters on the meta device until `materialize`.

    Every rank of the initialised world must call it. Under a fake process group one process can be any rank.
    """
    groups = groups_of(job.layout, job.model.kv_heads, device.type)
    stages = tuple(stage for stage in virtual_stages(job) if stage.rank == groups.pipeline_rank)
    own = job.stages[groups.pipeline_rank]
    with torch.device("meta"):
        built = [chunk_of(job, stage, constants, groups.tensor, groups.context) for stage in stages]
        whole = [chunk.to(precision.stored) for chunk in built]
    chunks = tuple(shard(chunk, own, groups, precision) for chunk in whole)
    pipelined = [
        pipeline_stage(
            chunk,
            stage.index,
            job.layout.pp * job.layout.vpp,
            inputs=_boundary(job, precision, groups, stage.index),
            output=_boundary(job, precision, groups, stage.index + 1),
            device=device,
            group=groups.pipeline_group,
        )
        for chunk, stage in zip(chunks, stages, strict=True)
    ]
    loss = loss_function(job.model.vocab, groups.tensor, job.layout.num_microbatches)
    schedule = TableSchedule(action_table(job), pipelined, loss)
    return Rank(job, groups, stages, chunks, schedule, device)


def materialize(rank: Rank) -> None:
    """Gives every parameter memory on the rank's device; `parameters.fill` gives them values."""
    for chunk in rank.chunks:
        chunk.to_empty(device=rank.device)


def _boundary(job: Job, precision: Precision, groups: Groups, stage: int) -> Tensor:
    """What enters a virtual stage, as a meta tensor: tokens, residuals, and behind the last one logits."""
    layout, length = job.layout, job.workload.seq_len // job.layout.cp
    if stage == 0:
        return torch.empty(layout.micro_batch_size, length, dtype=torch.long, device="meta")
    if stage == layout.pp * layout.vpp:
        width = int(padded_vocab(job.model.vocab, job.recipe.vocab_multiple, layout.tp)) // layout.tp
    else:
        width = job.model.hidden
        length = length // layout.tp if layout.sequence_parallel else length
    shape = (layout.micro_batch_size, length, width)
    return torch.empty(shape, dtype=precision.compute, device="meta", requires_grad=True)

"""One rank of a job without its hardware: what it holds, what it does, and what it sends in a step.

The rank is the one that training would build, and its steps are run by the same code, on tensors without data. A step
of many micro-batches repeats itself: what it sends is told from shorter ones. What a micro-batch sends does not depend
on those beside it, unless weights are gathered anew for each: then a third shorter step must be in line with two.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
import torch.distributed as dist
from torch.distributed.pipelining.schedules import _ComputationType
from torch.distributed.tensor import DTensor

from planner.document.job import Job
from runtime.chunk import EMBEDDING
from runtime.constants import Constants
from runtime.errors import UnsupportedPlanError
from runtime.fake import META, Traffic, counted, fake_world
from runtime.groups import CONTEXT, REPLICATE
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import Held, Shared, held, local_part, shared_rows
from runtime.precision import precision_of
from runtime.rank import Rank, build
from runtime.sharding import ShardedChunk
from runtime.support import check
from runtime.training import Batch, backward

__all__ = ["DryRank", "Sent", "dry_run"]

KINDS = {
    _ComputationType.FORWARD: "forward",
    _ComputationType.FULL_BACKWARD: "backward",
    _ComputationType.BACKWARD_INPUT: "input_grad",
    _ComputationType.BACKWARD_WEIGHT: "weight_grad",
}


@dataclass(frozen=True)
class Sent:
    """What one kind of collective of one group comes to in a step; bytes are those of the whole tensors."""

    kind: str
    ranks: tuple[int, ...]
    """Global ranks of the group."""
    calls: int
    sent_bytes: int


@dataclass(frozen=True)
class DryRank:
    """What one rank would hold, do and send."""

    rank: int
    pipeline_rank: int
    groups: Mapping[str, tuple[int, ...]]
    """Global ranks of the groups that this rank is in, by their name."""
    parameters: int
    """Elements of the parameters that its tensor-parallel rank has of its stage."""
    owned_parameters: int
    """Elements of them that this rank's optimizer steps."""
    padding: int
    """Elements that gathering and reducing adds to them, so that every rank's share is as long."""
    shared_gradients: Mapping[str, int]
    """Elements of owned gradients that ranks add up once a step: those of a `tensor`-parallel group, those that hold
    `copies` of a head, and those at `both ends` of a pipeline whose embedding and head are one matrix.
    """
    state_bytes: Mapping[str, int]
    """`owned` parameters, `gathered` ones that stay for the step, `gradients` where they pile up, `moments`."""
    actions: tuple[tuple[str, int, int], ...]
    """Kind, virtual stage and micro-batch of what it does, in order."""
    sent: tuple[Sent, ...]
    micro_batches_run: tuple[int, ...]
    """Micro-batches of the steps that were run to count what is sent."""


def dry_run(job: Job, rank: int) -> DryRank:
    """One rank of a job, by its global number. Raises UnsupportedPlanError for a job that is not honoured."""
    check(job)
    with fake_world(rank, job.layout.gpus_used):
        built = build(job, precision_of(job.recipe), META, Constants())
        reshards = job.stages[built.groups.pipeline_rank].reshard_after_forward
        shorter = _shorter(job, steps=3 if reshards else 2, smaller_groups=not reshards)
        steps = [_step(one) for one in shorter]
        total = _extended(job, shorter, [traffic for traffic, _ in steps])
        if total is None:
            shorter, steps = [job], [_step(job)]
            total = steps[0][0]
        parameters = [one for chunk in built.chunks for one in held(chunk)]
        return DryRank(
            rank=rank,
            pipeline_rank=built.groups.pipeline_rank,
            groups=_groups(built),
            parameters=sum(one.parameter.numel() for one in parameters),
            owned_parameters=sum(local_part(one.parameter).numel() for one in parameters),
            padding=sum(_padding(one.parameter) for one in parameters),
            shared_gradients=_shared_gradients(built, parameters),
            state_bytes=steps[-1][1],
            actions=tuple(_actions(built)),
            sent=tuple(Sent(*one, calls, total.sent_bytes[one]) for one, calls in total.calls.items()),
            micro_batches_run=tuple(one.layout.num_microbatches for one in shorter),
        )


def _shared_gradients(rank: Rank, parameters: Sequence[Held]) -> dict[str, int]:
    kinds: tuple[Shared, ...] = ("tensor", "copies")
    found: dict[str, int] = {
        kind: sum(local_part(one)[rows.start : rows.stop].numel() for one, rows in shared_rows(parameters, kind))
        for kind in kinds
    }
    is_tied = rank.job.model.tie_embeddings and rank.job.layout.pp > 1
    ends = [one.parameter for one in parameters if is_tied and one.pieces[0].name == EMBEDDING]
    return {**found, "both ends": sum(local_part(one).numel() for one in ends)}


def _shorter(job: Job, *, steps: int, smaller_groups: bool) -> list[Job]:
    """The job with fewer micro-batches, evenly more each time; none where they are no fewer together.

    With `smaller_groups` a group of micro-batches has no more than there are.
    """
    layout = job.layout
    for first in range(1, layout.num_microbatches // sum(range(steps + 1)) + 1):
        counts = [first * number for number in range(1, steps + 1)]
        jobs = [_with_micro_batches(job, count, smaller_groups=smaller_groups) for count in counts]
        if layout.num_microbatches % first == 0 and all(map(_is_honoured, jobs)):
            return jobs
    return []


def _with_micro_batches(job: Job, count: int, *, smaller_groups: bool) -> Job:
    group_size = min(job.layout.group_size, count) if smaller_groups else job.layout.group_size
    layout = job.layout.replaced(num_microbatches=count, group_size=group_size)
    return replace(job, layout=layout, workload=job.workload.replaced(global_batch=layout.global_batch))


def _is_honoured(job: Job) -> bool:
    try:
        check(job)
    except UnsupportedPlanError:
        return False
    return True


def _extended(job: Job, shorter: Sequence[Job], steps: Sequence[Traffic]) -> Traffic | None:
    """What the whole job sends, from what shorter ones do; none where they do not send evenly more."""
    if not shorter:
        return None
    counts = [one.layout.num_microbatches for one in shorter]
    total = Traffic()
    for one in set().union(*(step.calls for step in steps)):
        calls = _on_line(counts, [step.calls.get(one, 0) for step in steps], job.layout.num_microbatches)
        sent_bytes = _on_line(counts, [step.sent_bytes.get(one, 0) for step in steps], job.layout.num_microbatches)
        if calls is None or sent_bytes is None:
            return None
        total.calls[one], total.sent_bytes[one] = calls, sent_bytes
    return total


def _on_line(places: Sequence[int], values: Sequence[int], place: int) -> int | None:
    """The value at a place of the line through evenly spaced points; none where there is none in whole numbers."""
    step, rise = places[1] - places[0], values[1] - values[0]
    is_even = all(after - before == rise for before, after in zip(values, values[1:], strict=False))
    if not is_even or rise * (place - places[0]) % step:
        return None
    return values[0] + rise * (place - places[0]) // step


def _step(job: Job) -> tuple[Traffic, dict[str, int]]:
    """A step of this rank: what it sends, and the bytes of its states."""
    rank = build(job, precision_of(job.recipe), META, Constants())
    kept: list[tuple[int, int]] = []
    for chunk in rank.chunks:
        _watch(chunk, kept)
    size = job.layout.micro_batch_size * job.layout.num_microbatches, job.workload.seq_len
    tokens = torch.empty(size, dtype=torch.long, device=META)
    optimizer = Optimizer(rank, Settings())
    with counted() as traffic:
        backward(rank, Batch(tokens, tokens))
        optimizer.complete_gradients()
        parameters = [one.parameter for chunk in rank.chunks for one in held(chunk)]
        sharded = sum(local_part(one.grad).nbytes for one in parameters if one.grad is not None)
        optimizer.step(0)
    gathered, piled_up = (sum(one) for one in zip(*kept, strict=True))
    return traffic, {
        "owned": sum(local_part(one).nbytes for one in parameters),
        "gathered": gathered,
        "gradients": piled_up or sharded,
        "moments": optimizer.moment_bytes,
    }


def _watch(chunk: ShardedChunk, kept: list[tuple[int, int]]) -> None:
    """Writes down what a chunk holds when its last backward is done, before its gradients are reduced."""
    collect = chunk.collect_gradients

    def watched(*, last: bool) -> None:
        if last:
            kept.append(chunk.held_bytes())
        collect(last=last)

    chunk.collect_gradients = watched  # type: ignore[method-assign]


def _actions(rank: Rank) -> Iterator[tuple[str, int, int]]:
    """What torch's pipeline runtime was given to compute, without what it sends and gathers."""
    for action in rank.schedule.pipeline_order_with_comms[rank.groups.pipeline_rank]:
        if action.computation_type in KINDS:
            yield KINDS[action.computation_type], action.stage_index, action.microbatch_index


def _groups(rank: Rank) -> dict[str, tuple[int, ...]]:
    groups = rank.groups
    found = {
        "pipeline": groups.pipeline_group,
        "replicas": groups.mesh[REPLICATE].get_group(),
        "context": groups.mesh[CONTEXT].get_group(),
        "states": groups.states.get_group(),
        "data": groups.data.get_group(),
        "tensor": groups.tensor.group,
        "copies": groups.tensor.copies_group,
        "world": dist.group.WORLD,
    }
    ranks = {name: tuple(dist.get_process_group_ranks(group)) for name, group in found.items() if group is not None}
    return {name: members for name, members in ranks.items() if len(members) > 1}


def _padding(parameter: torch.nn.Parameter) -> int:
    """Elements by which the rows of a sharded parameter are filled up to a multiple of the ranks that share them."""
    assert isinstance(parameter, DTensor)
    if not parameter.placements[-1].is_shard():
        return 0
    rows, ranks = parameter.shape[0], parameter.device_mesh.shape[-1]
    return -rows % ranks * (parameter.numel() // rows)

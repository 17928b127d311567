"""The shape of a plan on a few ranks: every kind of parallelism that it has, at its smallest."""

import math
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from cost_models.schedules import GROUPED, placement
from cost_models.specs.model import ModelSpec
from planner.document import Chunk, Parallelism
from planner.document.job import Job, StageJob, virtual_stages
from runtime.errors import UnsupportedPlanError
from runtime.support import check

__all__ = ["shrunk"]

MOST_RANKS, DEGREE = 8, 2
# Degrees that are tried together where all of them are too many; the first says whether there is anything to try.
APART = (("dp_shard", "tp", "pp"), ("dp_replicate", "dp_shard", "pp"), ("cp", "tp", "pp"))
SEQ_LEN, WINDOW = 16, 5
HEADS, HEAD_DIM, FFN, VOCAB, VOCAB_MULTIPLE = 4, 8, 48, 61, 8
MOST_MICRO_BATCHES = 16


def shrunk(job: Job) -> tuple[Job, ...]:
    """One small job, or several where its degrees of two would take more than 8 ranks: replicas apart from tensor
    parallelism, context parallelism apart from other data parallelism.

    The plan must be one that `support.check` accepts.
    """
    layout = job.layout
    degrees = {name: min(getattr(layout, name), DEGREE) for name in ("tp", "pp", "cp", "dp_shard", "dp_replicate")}
    if math.prod(degrees.values()) <= MOST_RANKS:
        return (_small(job, **degrees),)
    apart = [one for one in APART if degrees[one[0]] > 1]
    return tuple(_small(job, **{name: degrees[name] if name in one else 1 for name in degrees}) for one in apart)


def _small(job: Job, *, tp: int, pp: int, cp: int, dp_shard: int, dp_replicate: int) -> Job:
    """The job with these degrees, small sizes and the fewest micro-batches that its schedule runs."""
    ends = [0, job.layout.pp - 1][:pp]
    vpp = min(job.layout.vpp, DEGREE)
    layers = _layers(job, ends, vpp)
    stage_of = placement(job.layout.schedule, pp, vpp).stage_of()
    first = [sum(layers[:index]) for index in range(pp * vpp)]
    stages = tuple(
        _stage(job.stages[end], [Chunk(first_layer=first[one], layers=layers[one]) for one in stage_of[rank].tolist()])
        for rank, end in enumerate(ends)
    )
    model = _model(job.model, sum(layers), copies=job.layout.tp > job.model.kv_heads)
    recipe = job.recipe.replaced(vocab_multiple=min(job.recipe.vocab_multiple, VOCAB_MULTIPLE))
    small = replace(job, model=model, recipe=recipe, stages=stages)
    for layout in _layouts(job.layout, tp=tp, pp=pp, cp=cp, vpp=vpp, dp_shard=dp_shard, dp_replicate=dp_replicate):
        workload = job.workload.replaced(seq_len=SEQ_LEN, global_batch=layout.global_batch)
        candidate = replace(small, layout=layout, workload=workload)
        try:
            check(candidate)
        except UnsupportedPlanError as error:
            last = error
            continue
        return candidate
    raise last


def _layouts(layout: Parallelism, *, tp: int, pp: int, cp: int, **degrees: int) -> Iterator[Parallelism]:
    """The layout with these degrees, by the number of micro-batches; groups larger than pp stay larger."""
    grouped = layout.schedule in GROUPED and layout.group_size
    dp = degrees["dp_shard"] * degrees["dp_replicate"]
    for micro_batches in range(min(layout.num_microbatches, DEGREE * pp), MOST_MICRO_BATCHES + 1):
        yield layout.replaced(
            tp=tp,
            pp=pp,
            cp=cp,
            dp=dp,
            **degrees,
            sequence_parallel=layout.sequence_parallel and tp > 1,
            micro_batch_size=min(layout.micro_batch_size, DEGREE),
            num_microbatches=micro_batches,
            group_size=pp + (layout.group_size > layout.pp) if grouped else 0,
            gpus_used=tp * pp * cp * dp,
            gpus_idle=0,
        )


def _layers(job: Job, ends: list[int], vpp: int) -> list[int]:
    """Layers of each virtual stage: 1 of the shortest, 2 of longer ones, none of those that have none."""
    stages = virtual_stages(job)
    filled = [stage.chunk.layers for stage in stages if stage.chunk.layers]
    shortest = min(filled)
    by_place = {(stage.rank, chunk): 0 for stage in stages for chunk in range(vpp)}
    for rank, number in product(ends, range(vpp)):
        chunks = job.stages[rank].chunks
        count = chunks[0 if number == 0 else -1].layers
        by_place[rank, number] = min(count, 1) + (count > shortest)
    place = placement(job.layout.schedule, len(ends), vpp)
    return [by_place[ends[rank], chunk] for rank, chunk in zip(place.rank.tolist(), place.chunk.tolist(), strict=True)]


def _stage(stage: StageJob, chunks: list[Chunk]) -> StageJob:
    """A stage with other chunks; as large a share of its layers is recomputed, at least one if any is."""
    layers = sum(chunk.layers for chunk in chunks)
    before = sum(chunk.layers for chunk in stage.chunks)
    count = min(layers, -(-stage.recompute.layers * layers // before)) if before else 0
    recompute = stage.recompute.replaced(layers=count, set=stage.recompute.set if count else ())
    return replace(stage, chunks=tuple(chunks), recompute=recompute)


def _model(model: ModelSpec, layers: int, *, copies: bool) -> ModelSpec:
    """A model of the same kind; with `copies` of key and value heads on several ranks it has one."""
    kv_heads = 1 if copies else HEADS if model.kv_heads == model.heads else HEADS // 2
    return model.replaced(
        layers=layers,
        hidden=HEADS * HEAD_DIM,
        ffn=FFN,
        heads=HEADS,
        kv_heads=kv_heads,
        head_dim=HEAD_DIM,
        vocab=VOCAB,
        max_seq_len=SEQ_LEN,
        sliding_window=min(model.sliding_window, WINDOW),
    )

"""Seconds and bytes of many configurations at once: those that share expressions and hardware in one batch."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.communication import hop_seconds
from cost_models.lowered_costs import structure
from cost_models.schedules.live import split_histories
from cost_models.schedules.sends import waiting_for_sends
from cost_models.schedules.simulate import period_s, simulate
from cost_models.schedules.times import StageTimes
from cost_models.schedules.whole_backward import first_stages, with_whole_backwards
from planner.evaluate.runs import Run
from planner.layout_costs import WAITING, LayoutCosts
from planner.live import ALL_ALIVE, SETTLED
from planner.predict import MICRO_BATCH_OUTPUTS, CostModel, constants
from planner.request import PlanRequest
from planner.space import SCHEDULES, joined, with_strides

__all__ = ["RunCosts", "costs_of"]

Array = NDArray[np.float64]
# Rounds of as many micro-batches as ranks after which a schedule repeats itself.
LONG = 16
Rows = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class RunCosts:
    """What one step of a run takes; bytes are those of the fullest GPU."""

    step_time_s: float
    allocated_bytes: float
    reserved_bytes: float
    device_bytes: float
    stages: dict[str, Array]
    """Every output of the stage expressions, float[pp] by name."""


def costs_of(runs: Sequence[Run]) -> list[RunCosts]:
    """The costs of each run, in their order."""
    batches: dict[tuple[Any, ...], list[int]] = defaultdict(list)
    for index, run in enumerate(runs):
        batches[_batch_key(run)].append(index)
    results: dict[int, RunCosts] = {}
    for members in batches.values():
        results |= dict(zip(members, _batch([runs[index] for index in members]), strict=True))
    return [results[index] for index in range(len(runs))]


def _batch_key(run: Run) -> tuple[Any, ...]:
    cluster = run.cluster.model_dump_json(exclude={"gpus", "sources"})
    scale = run.cluster.nodes if run.profile.straggling_per_doubling else 1
    return structure(run.model), run.recipe.model_dump_json(), run.profile.name, cluster, run.workload.precision, scale


def _batch(runs: list[Run]) -> list[RunCosts]:
    """The costs of runs that differ in sizes and layouts alone."""
    sets = list(dict.fromkeys(run.recompute.shares for run in runs))
    widest = max(runs, key=lambda run: run.cluster.gpus)
    model = CostModel(_request(widest), recompute_shares=[dict(shares) for shares in sets])
    columns = with_strides({name: np.array([run.layout[name] for run in runs]) for name in runs[0].layout})
    columns["schedule"] = np.array([SCHEDULES.index(run.schedule) for run in runs])
    sizes = [constants(_request(run)) | {"vocab": run.model.vocab} for run in runs]
    columns |= {name: np.array([values[name] for values in sizes]) for name in sizes[0]}
    costs = LayoutCosts.of(model, columns)
    chosen = np.array([sets.index(run.recompute.shares) for run in runs])
    rows = _stage_rows(runs, chosen)
    stages = model.stages(costs, rows, "all")
    chunks = model.stages(costs, _chunk_rows(runs, chosen), "chunk")
    results, first, first_chunk = [], 0, 0
    for index, run in enumerate(runs):
        pp, vpp = run.groups.shape
        mine = {name: column[first : first + pp] for name, column in stages.items()}
        seconds = {name: column[first_chunk : first_chunk + pp * vpp] for name, column in chunks.items()}
        results.append(_costs(run, costs, index, mine, {k: v.reshape(pp, vpp) for k, v in seconds.items()}))
        first, first_chunk = first + pp, first_chunk + pp * vpp
    return results


def _request(run: Run) -> PlanRequest:
    return PlanRequest.model_construct(
        model=run.model,
        cluster=run.cluster,
        workload=run.workload,
        profile=run.profile,
        recipe=run.recipe,
        capacity_bytes=run.cluster.gpu.usable_memory_bytes,
    )


def _costs(run: Run, costs: LayoutCosts, index: int, stages: dict[str, Array], chunks: dict[str, Array]) -> RunCosts:
    layout = run.layout
    boundary = float(costs.per_micro_batch("boundary_bytes")[index])
    stride = int(costs.layouts["pp_stride"][index])
    hops = hop_seconds(run.cluster, run.profile, boundary, stride, layout["pp"])
    if run.schedule in schedules.SPLIT and not run.recipe.splits_first_stage:
        chunks = with_whole_backwards(chunks, first_stages(run.placement))
    times = StageTimes.of(
        *(chunks[name] for name in MICRO_BATCH_OUTPUTS),
        first_s=stages["first_s"],
        last_s=stages["last_s"],
        hop_s=hops,
    )
    if not run.overlaps_sends:
        times = waiting_for_sends(times, run.placement)
    fullest = int(np.argmax(stages["device_bytes"]))
    return RunCosts(
        step_time_s=_span_s(run, times) + float(stages["global_s"].max()),
        allocated_bytes=float(stages["allocated_bytes"][fullest]),
        reserved_bytes=float(stages["reserved_bytes"][fullest]),
        device_bytes=float(stages["device_bytes"][fullest]),
        stages=stages,
    )


def _span_s(run: Run, times: StageTimes) -> float:
    """Seconds of the replayed schedule; of a long one, the steady state of a shorter one is carried on."""
    pp, vpp, micro_batches = (run.layout[name] for name in ("pp", "vpp", "num_microbatches"))

    def span_s(count: int) -> float:
        table = schedules.actions(run.schedule, pp, vpp, count)
        return float(simulate(table, times).span_s if run.synchronized else period_s(table, times))

    if micro_batches <= LONG * pp:
        return span_s(micro_batches)
    shorter = (LONG - 1) * pp + micro_batches % pp
    before, after = span_s(shorter - pp), span_s(shorter)
    return after + (micro_batches - shorter) // pp * (after - before)


@lru_cache(maxsize=4096)
def _live(schedule: str, pp: int, vpp: int, micro_batches: int) -> NDArray[np.int64]:
    """int[pp, most, vpp] live vectors, see `_settled`."""
    return np.asarray(schedules.live_chunks(schedule, pp, vpp, _settled(schedule, pp, micro_batches)))


def _settled(schedule: str, pp: int, micro_batches: int) -> int:
    """So many micro-batches keep as much: GPipe keeps all of them, the others stop growing in a full pipeline."""
    return micro_batches if schedule in ALL_ALIVE else min(micro_batches, SETTLED * pp)


def _alive(run: Run, recomputed: Array, again: Array, in_last: NDArray[np.int64]) -> Rows:
    """Columns of what is alive of recomputed layers and of the ends: `again` and `in_last` where no backward is split.

    What lacks weight gradients only is not recomputed again.
    """
    pp, vpp = run.groups.shape
    ends = np.arange(pp)
    with_head = ends == run.placement.rank[-1]
    if run.schedule not in schedules.SPLIT:
        nothing = {name: np.zeros(pp) for name in WAITING}
        return {**nothing, "live_recompute_layers": again, "live_head": np.where(with_head, in_last, 0)}
    table = schedules.actions(run.schedule, pp, vpp, _settled(run.schedule, pp, run.layout["num_microbatches"]))
    busy, waiting = split_histories(table, splits_first_stage=run.recipe.splits_first_stage)
    head = waiting[:, :, -1].max(-1)
    return {
        "live_recompute_layers": again - (waiting * recomputed[:, None]).sum(-1).max(-1),
        "live_head": np.where(with_head, busy[:, :, -1].max(-1) + head, 0),
        "waiting_layers": (waiting * run.groups[:, None]).sum(-1).max(-1),
        "waiting_embedding": np.where(ends == 0, waiting[:, :, 0].max(-1), 0),
        "waiting_head": np.where(with_head, head, 0),
    }


def _stage_rows(runs: list[Run], chosen: NDArray[np.int64]) -> Rows:
    """A row for every pipeline rank of every run: what it holds and keeps alive."""
    parts: list[Rows] = []
    for index, run in enumerate(runs):
        pp, vpp = run.groups.shape
        recomputed = _recomputed(run)
        live = _live(run.schedule, pp, vpp, run.layout["num_microbatches"])
        held = (live * run.groups[:, None]).sum(-1)
        peak = held.argmax(-1)
        most = live[np.arange(pp), peak]
        ends = np.arange(pp)
        parts.append(
            {
                **_common(run, index, int(chosen[index]), pp),
                "position": ends,
                "layers": run.groups.sum(-1),
                "recompute_layers": recomputed.sum(-1),
                "live_layers": (most * run.groups).sum(-1),
                "has_embedding": (ends == 0).astype(np.int64),
                "has_head": (ends == run.placement.rank[-1]).astype(np.int64),
                "head_rank": (ends == run.placement.rank[-1]).astype(np.int64),
                "live_embedding": np.where(ends == 0, live[:, :, 0].max(-1), 0),
                **_alive(run, recomputed, (most * recomputed).sum(-1), live[:, :, -1].max(-1)),
            }
        )
    return joined(parts)


def _chunk_rows(runs: list[Run], chosen: NDArray[np.int64]) -> Rows:
    """A row for every chunk of every pipeline rank of every run."""
    parts: list[Rows] = []
    for index, run in enumerate(runs):
        pp, vpp = run.groups.shape
        rank, chunk = np.divmod(np.arange(pp * vpp), vpp)
        parts.append(
            {
                **_common(run, index, int(chosen[index]), pp * vpp),
                "position": rank,
                "chunk": chunk,
                "layers": run.groups.reshape(-1),
                "recompute_layers": _recomputed(run).reshape(-1),
                "has_embedding": ((rank == 0) & (chunk == 0)).astype(np.int64),
                "has_head": ((rank == run.placement.rank[-1]) & (chunk == vpp - 1)).astype(np.int64),
                "head_rank": (rank == run.placement.rank[-1]).astype(np.int64),
            }
        )
    return joined(parts)


def _common(run: Run, index: int, recompute: int, rows: int) -> Rows:
    everywhere = {
        "layout": index,
        "zero": run.zero,
        "recompute": recompute,
        "vpp": run.layout["vpp"],
        "recompute_ends": int(bool(run.recompute.shares)),
    }
    return {name: np.full(rows, value) for name, value in everywhere.items()}


def _recomputed(run: Run) -> Array:
    """Groups of every chunk that recompute, float[pp, vpp]."""
    if not run.recompute.shares:
        return np.zeros_like(run.groups)
    if run.recompute.per_chunk is not None:
        return np.minimum(run.recompute.per_chunk / len(run.model.layer_pattern.period), run.groups)
    return run.recompute.share * run.groups

"""Memory over time: the bytes that the device of each rank holds from one action to the next.

A rank holds what never leaves (states, gathered parameters, communicators, context, fragmentation), buffers while its
passes run, what the forwards have saved and no BACKWARD or WEIGHT_GRAD has freed yet, and beside a backward what that
works in (`transient_bytes`, in which the loss counts). In the global part it holds the optimizer's temporaries instead.

The curve peaks at the cost model's bytes of the stage, or a little under them: where a rank has several chunks, the
cost model adds up the most micro-batches alive in all chunks, in the wider chunks and in the chunks with the ends of
the model, each at its own worst moment; on the clock those moments need not be one. Fragmentation is the allocator's
share of the peak and is held throughout, since an allocator gives nothing back.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from cost_models.schedules.table import ActionTable, IntArray, Kind
from cost_models.schedules.times import FloatArray
from planner.options import Rows, chunk_rows
from planner.pipeline import Pipeline
from planner.space import take
from planner.timeline.step import Step

__all__ = ["MemoryCurve", "StageMemory", "memory_curves", "stage_memory"]


@dataclass(frozen=True, eq=False)
class MemoryCurve:
    """Bytes of a rank as steps: `held_bytes[k]` from `time_s[k]` up to the next time; the last one ends the step."""

    time_s: FloatArray
    held_bytes: FloatArray

    @property
    def peak_bytes(self) -> float:
        """The most that is ever held."""
        return float(self.held_bytes.max())

    @property
    def peak_s(self) -> float:
        """When the most is held first."""
        return float(self.time_s[np.argmax(self.held_bytes)])


@dataclass(frozen=True, eq=False)
class StageMemory:
    """What a GPU of each rank holds, by when it is held, in bytes."""

    resting_bytes: FloatArray
    """[ranks] at any time."""
    buffer_bytes: FloatArray
    """[ranks] while passes run."""
    transient_bytes: FloatArray
    """[ranks] while a backward runs."""
    optimizer_bytes: FloatArray
    """[ranks] in the global part of the step."""
    saved_bytes: FloatArray
    """[ranks, chunks] from the forward of one slice of a micro-batch to its last gradient."""
    waiting_bytes: FloatArray
    """[ranks] of each slice in the last chunk but one: logits that wait for their backward."""
    most_waiting: IntArray
    """[ranks] slices whose logits a rank has at most: ranks that share out the head wait for the last one."""
    peak_bytes: FloatArray
    """[ranks] what the cost model says the device reports at its peak."""


def stage_memory(pipeline: Pipeline, choice: ArrayLike) -> StageMemory:
    """What the stages of a choice hold."""
    rows = take(pipeline.options, np.asarray(choice))
    held = pipeline.model.stages(pipeline.costs, rows, "phases")
    passes = sum(held[name] for name in ("saved_bytes", "waiting_bytes", "buffer_bytes", "transient_bytes"))
    waiting_logits = np.maximum(rows["live_head"] - 1, 1)
    return StageMemory(
        # Fragmentation is part of what rests: it is a share of the whole peak.
        resting_bytes=held["device_bytes"] - np.maximum(passes, held["optimizer_bytes"]),
        buffer_bytes=held["buffer_bytes"],
        transient_bytes=held["transient_bytes"],
        optimizer_bytes=held["optimizer_bytes"],
        saved_bytes=_saved_bytes(pipeline, rows),
        waiting_bytes=held["waiting_bytes"] / waiting_logits,
        most_waiting=rows["live_head"],
        peak_bytes=held["device_bytes"],
    )


def _saved_bytes(pipeline: Pipeline, rows: Rows) -> FloatArray:
    """[ranks, chunks] bytes that one slice of a micro-batch keeps in each chunk."""
    ranks, vpp = len(rows["layers"]), pipeline.layout["vpp"]
    repeated = {name: np.repeat(column, vpp) for name, column in rows.items()}
    chunks = chunk_rows(repeated, np.tile(np.arange(vpp), ranks))
    alive = {
        "live_layers": chunks["layers"],
        "live_recompute_layers": chunks["recompute_layers"],
        "live_embedding": chunks["has_embedding"],
        "live_head": chunks["has_head"] > 0,
    }
    return pipeline.model.stages(pipeline.costs, {**chunks, **alive}, "phases")["saved_bytes"].reshape(ranks, vpp)


def memory_curves(step: Step, memory: StageMemory) -> tuple[MemoryCurve, ...]:
    """One curve a rank, from 0 to the end of the step."""
    curves = []
    for rank in range(step.ranks):
        mine = slice(*step.table.rank_start[rank : rank + 2])
        during, after = _levels(step.table, mine, memory, rank)
        rest = memory.resting_bytes[rank]
        actions_s = np.stack([step.start_s[mine], step.end_s[mine]], axis=1).reshape(-1)
        levels = np.stack([during, after], axis=1).reshape(-1)
        time_s = np.concatenate([[0.0], actions_s, [step.span_s, step.step_s]])
        ends = [rest + memory.optimizer_bytes[rank], rest]
        held = np.concatenate([[rest + memory.buffer_bytes[rank]], levels, ends])
        # Of levels at one time the last holds: an action that starts where another ends, or that takes no time.
        lasting = np.append(np.diff(time_s) > 0, True)
        time_s, held = time_s[lasting], held[lasting]
        changes = np.append(True, np.diff(held) != 0)
        changes[-1] = True
        curves.append(MemoryCurve(time_s[changes], held[changes]))
    return tuple(curves)


def _levels(table: ActionTable, mine: slice, memory: StageMemory, rank: int) -> tuple[FloatArray, FloatArray]:
    """[actions of the rank] bytes while each runs and once it has ended."""
    kind, chunk = table.kind[mine], table.chunk[mine]
    frees = np.isin(kind, (Kind.BACKWARD, Kind.WEIGHT_GRAD)).astype(np.int64)
    change = (kind == Kind.FORWARD) - frees
    saved, in_last = memory.saved_bytes[rank][chunk], chunk == table.chunks - 1
    base = memory.resting_bytes[rank] + memory.buffer_bytes[rank]

    def held(not_yet_freed: IntArray | int) -> FloatArray:
        in_flight = np.cumsum(saved * change) + saved * not_yet_freed
        logits = np.minimum(np.cumsum(in_last * change) + in_last * not_yet_freed, memory.most_waiting[rank])
        level: FloatArray = base + in_flight + memory.waiting_bytes[rank] * np.maximum(logits - 1, 0)
        return level

    return held(frees) + (kind != Kind.FORWARD) * memory.transient_bytes[rank], held(0)

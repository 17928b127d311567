"""Memory over time: the bytes that the device of each rank holds from one action to the next.

A rank holds what never leaves (states, gathered parameters, communicators, context, fragmentation), buffers while its
passes run, what the forwards have saved and no BACKWARD or WEIGHT_GRAD has freed yet, and beside a backward what that
works in (`transient_bytes`, in which the loss counts). What is recomputed comes back with the INPUT_GRAD. In the global
part the rank holds the optimizer's temporaries instead.

The curve peaks at the cost model's bytes of the stage, or a little under them: where a rank has several chunks, the
cost model adds up the most micro-batches alive in all chunks, in the wider chunks and in the chunks with the ends of
the model, each at its own worst moment; on the clock those moments need not be one. Fragmentation is the allocator's
share of the peak and is held throughout, since an allocator gives nothing back.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind
from cost_models.schedules.times import FloatArray
from planner.fitting import Rows
from planner.options import chunk_rows
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
    """[ranks, chunks] from the forward of one slice of a micro-batch to its BACKWARD or INPUT_GRAD."""
    split_bytes: FloatArray
    """[ranks, chunks] from there to its WEIGHT_GRAD."""
    waiting_bytes: FloatArray
    """[ranks] of each slice in the last chunk but one: logits that wait for their backward."""
    most_waiting: IntArray
    """[ranks] slices whose logits a rank has at most: ranks that share out the head wait for the last one."""
    split_waiting_bytes: FloatArray
    """[ranks] of each micro-batch in the last chunk: gradients of logits that wait for the WEIGHT_GRAD."""
    peak_bytes: FloatArray
    """[ranks] what the cost model says the device reports at its peak."""


def stage_memory(pipeline: Pipeline, choice: ArrayLike) -> StageMemory:
    """What the stages of a choice hold."""
    rows = take(pipeline.options, np.asarray(choice))
    held = pipeline.model.stages(pipeline.costs, rows, "phases")
    passes = sum(held[name] for name in ("saved_bytes", "waiting_bytes", "buffer_bytes", "transient_bytes"))
    saved, split = _saved_bytes(pipeline, rows, split=False), _saved_bytes(pipeline, rows, split=True)
    return StageMemory(
        # Fragmentation is part of what rests: it is a share of the whole peak.
        resting_bytes=held["device_bytes"] - np.maximum(passes, held["optimizer_bytes"]),
        buffer_bytes=held["buffer_bytes"],
        transient_bytes=held["transient_bytes"],
        optimizer_bytes=held["optimizer_bytes"],
        saved_bytes=saved,
        split_bytes=split,
        waiting_bytes=_waiting_bytes(pipeline, rows, split=False),
        most_waiting=rows["live_head"],
        split_waiting_bytes=_waiting_bytes(pipeline, rows, split=True),
        peak_bytes=held["device_bytes"],
    )


def _waiting_bytes(pipeline: Pipeline, rows: Rows, *, split: bool) -> FloatArray:
    """[ranks] bytes of the logits of one slice that waits: for its backward, or for its weight gradient alone."""
    has_head = rows["has_head"] > 0
    alive = {"live_head": has_head * (1 if split else 2), "waiting_head": has_head * int(split)}
    waiting_bytes: FloatArray = pipeline.model.stages(pipeline.costs, {**rows, **alive}, "phases")["waiting_bytes"]
    return waiting_bytes


def _saved_bytes(pipeline: Pipeline, rows: Rows, *, split: bool) -> FloatArray:
    """[ranks, chunks] bytes that one slice keeps in each chunk; where `split`, until its weight gradient.

    Where the first stage does not split its backward, there it is all that it kept before.
    """
    ranks, vpp = len(rows["layers"]), pipeline.layout["vpp"]
    repeated = {name: np.repeat(column, vpp) for name, column in rows.items()}
    chunks = chunk_rows(repeated, np.tile(np.arange(vpp), ranks))
    whole = (
        0 if pipeline.model.request.recipe.splits_first_stage else (chunks["position"] == 0) & (chunks["chunk"] == 0)
    )
    waits = split * (1 - whole)
    alive = {
        "live_layers": chunks["layers"],
        "live_recompute_layers": chunks["recompute_layers"] * (1 - waits),
        "live_embedding": chunks["has_embedding"],
        "live_head": chunks["has_head"] > 0,
        "waiting_layers": chunks["layers"] * waits,
        "waiting_embedding": chunks["has_embedding"] * waits,
        "waiting_head": (chunks["has_head"] > 0) * waits,
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
    backward, split = (kind == Kind.BACKWARD) | (kind == Kind.INPUT_GRAD), kind == Kind.INPUT_GRAD
    # What an action frees, or brings back, does so at its end; a forward keeps what it makes from its start on.
    begun, ended = (kind == Kind.FORWARD) - 1 * backward, 1 * split - (kind == Kind.WEIGHT_GRAD)
    in_last = chunk == table.chunks - 1
    base = memory.resting_bytes[rank] + memory.buffer_bytes[rank]

    def held(running: int) -> FloatArray:
        def alive(weight: FloatArray | BoolArray, weight_after: FloatArray | BoolArray) -> tuple[Any, Any]:
            before = np.cumsum(weight * begun) + weight * (running * backward)
            return before, np.cumsum(weight_after * ended) - weight_after * (running * ended)

        in_flight, waiting = alive(memory.saved_bytes[rank][chunk], memory.split_bytes[rank][chunk])
        logits, gradients = alive(in_last, in_last)
        logits = np.minimum(logits, memory.most_waiting[rank])
        level: FloatArray = base + in_flight + memory.waiting_bytes[rank] * np.maximum(logits - 1, 0)
        level += waiting + memory.split_waiting_bytes[rank] * gradients
        return level

    return held(1) + (kind != Kind.FORWARD) * memory.transient_bytes[rank], held(0)

"""Replayed steps that the tests of timelines share: equal stages, so that every time can be told by hand."""

from functools import cache

import numpy as np

from cost_models import schedules
from cost_models.schedules.table import ActionTable
from cost_models.schedules.times import StageTimes
from planner.document import PlanDocument, read
from planner.timeline.memory import StageMemory, memory_curves
from planner.timeline.step import Step, replayed
from planner.timeline.text import Simulation
from planner.timeline.timeline import Timeline, timeline_of_plan
from tests.cost_models.schedules.cases import table_of
from tests.golden.jobs import JOBS

GOLDEN = {job.name: job.path for job in JOBS}


@cache
def plan(name: str = "llama3-70b_256") -> PlanDocument:
    """A kept plan."""
    return read(GOLDEN[name])


@cache
def plan_timeline(name: str = "llama3-70b_256") -> Timeline:
    """A kept plan, replayed."""
    return timeline_of_plan(plan(name))


def equal_step(table: ActionTable, *, hop_s: float = 0.0, edge_s: float = 0.0, global_s: float = 0.0) -> Step:
    """Every forward takes 1 s, every gradient 1 s, so a backward 2 s."""
    ones = np.ones((table.ranks, table.chunks))
    return replayed(table, StageTimes.of(ones, ones, ones, first_s=edge_s, last_s=edge_s, hop_s=hop_s), global_s)


def two_ranks(**seconds: float) -> Step:
    """1F1B of 3 micro-batches on 2 ranks."""
    return equal_step(schedules.actions("1f1b", 2, 1, 3), **seconds)


def split_gradients(**seconds: float) -> Step:
    """Two ranks, the second of which postpones the weight gradients of its 2 micro-batches."""
    return equal_step(table_of("F0 F1 B0 B1", "F0 I0 F1 I1 W0 W1"), **seconds)


def with_memory(step: Step, **changed: float) -> Timeline:
    """A timeline whose ranks rest at 10 bytes and save 1 byte a chunk; `changed` names other fields of StageMemory."""
    held = dict.fromkeys(("buffer", "transient", "optimizer", "waiting", "split_waiting"), 0.0)
    held |= {"resting": 10.0, "split": 1.0, **changed}
    columns = {f"{name}_bytes": np.full(step.ranks, amount) for name, amount in held.items()}
    saved = np.ones((step.ranks, step.table.chunks))
    alive = np.full(step.ranks, step.table.micro_batches * step.table.slices)
    columns["split_bytes"] = saved * columns["split_bytes"][:, None]
    memory = StageMemory(**columns, saved_bytes=saved, most_waiting=alive, peak_bytes=np.full(step.ranks, 20.0))
    return Timeline(step, memory_curves(step, memory), memory.peak_bytes, 40.0)


def simulation(name: str = "llama3-70b_256") -> Simulation:
    """A kept plan, replayed, with nothing else asked for."""
    return Simulation(plan(name), plan_timeline(name))

"""A plan on the clock: its step replayed, and the memory of every pipeline rank from one action to the next."""

from dataclasses import dataclass

import numpy as np

from cost_models.schedules.errors import ScheduleError
from cost_models.schedules.times import FloatArray
from cost_models.specs.profile import HardwareProfile
from planner.document import PlanDocument
from planner.errors import RequestError
from planner.fixed import planned
from planner.incumbent import Candidate
from planner.space import SCHEDULES
from planner.timeline.memory import MemoryCurve, memory_curves, stage_memory
from planner.timeline.step import Step, replayed

__all__ = ["Timeline", "timeline_of", "timeline_of_plan"]


@dataclass(frozen=True, eq=False)
class Timeline:
    """A replayed plan."""

    step: Step
    memory: tuple[MemoryCurve, ...]
    """One a rank."""
    predicted_bytes: FloatArray
    """[ranks] what the cost model says the device reports at its peak."""
    capacity_bytes: float
    """Memory of one GPU."""


def timeline_of_plan(document: PlanDocument, profile: HardwareProfile | None = None) -> Timeline:
    """The step of a plan document, costed anew and replayed, timed by `profile`, else by its own.

    Raises RequestError when its schedule is unknown or cannot run its micro-batches, or when its stages are not split
    as the search splits them; SpecError when the catalog has no profile of its GPU.
    """
    name = document.parallelism.schedule
    if name not in SCHEDULES:
        message = f"parallelism.schedule must be one of {', '.join(SCHEDULES)}, got {name!r}"
        raise RequestError(message)
    try:
        return timeline_of(planned(document, profile))
    except ScheduleError as error:
        message = f"parallelism.schedule {name!r} cannot be replayed: {error}"
        raise RequestError(message) from error


def timeline_of(candidate: Candidate) -> Timeline:
    """The step of one configuration."""
    pipeline, choice = candidate.pipeline, np.asarray(candidate.choice)
    global_s = float(pipeline.options["global_s"][choice].max())
    step = replayed(pipeline.table, pipeline.times(choice), global_s)
    memory = stage_memory(pipeline, choice)
    capacity_bytes = float(pipeline.model.request.capacity_bytes)
    return Timeline(step, memory_curves(step, memory), memory.peak_bytes, capacity_bytes)

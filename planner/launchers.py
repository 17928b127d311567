"""What each launcher says to a plan: whether it can express it, and which rules forbid that."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import rules
from planner.document import Configuration, LauncherAnswer, PlanDocument, StageChoice
from planner.document.honoured import faults
from planner.document.job import job_of
from planner.forbidden import violations
from planner.space import CONTEXT_TYPES, OFFLOADS, RANK_ORDERS, known_values

__all__ = ["RUNTIME", "Refusal", "answers", "common_count", "illegalities", "inexpressible_fields", "refusals"]

RUNTIME = "runtime"


@dataclass(frozen=True)
class Refusal:
    """A rule that a plan breaks: its id, the field it judges, and what it says of the first stage that does."""

    id: str
    field: str
    message: str

    @property
    def text(self) -> str:
        """The message and where to read more: `plan rules ID`."""
        return f"{self.message} ({self.id})"


def refusals(document: PlanDocument | Configuration, launcher: str) -> tuple[Refusal, ...]:
    """The rules of a launcher that a plan breaks. There are none for our own runtime: it executes every plan.

    >>> from planner.document import read
    >>> [each.id for each in refusals(read("tests/golden/llama3-70b_256.json"), "nanotron")][:1]
    ['nanotron-runs-schedule']
    """
    values = _values(document)
    found = []
    for rule in rules.RULES:
        if rule.kind == "express" and rule.launcher == launcher:
            holds = np.broadcast_to(rule.holds(values), len(document.stages))
            if not holds.all():
                stage = int(np.argmin(holds))
                message = rule.message({name: _of_stage(value, stage) for name, value in values.items()})
                where = f"stages[{stage}]: " if rule.scope in ("split", "stage") and len(holds) > 1 else ""
                found.append(Refusal(rule.id, rule.field, where + message))
    return tuple(found)


def illegalities(document: PlanDocument | Configuration) -> tuple[Refusal, ...]:
    """The rules of every plan that one breaks; none for what the search finds."""
    values = _values(document)
    fields = {rule.id: rule.field for rule in rules.RULES}
    known = document.parallelism.schedule in rules.SCHEDULES
    broken = violations(values, flexible=True) if known else rules.violations(values)
    return tuple(Refusal(name, fields.get(name, "schedule"), message) for name, message in broken)


def answers(document: PlanDocument) -> dict[str, LauncherAnswer]:
    """The answer of every launcher to a plan; what it can express takes the plan's own time.

    Our own runtime is last: a plan is its form as it is, what counts is whether it honours all of it.
    """
    reasons = {
        launcher.name: tuple(each.text for each in refusals(document, launcher.name)) for launcher in rules.LAUNCHERS
    }
    return {
        name: LauncherAnswer(
            expressible=not why_not,
            why_not=why_not,
            best_step_time_s=None if why_not else document.predicted.step_time_s,
        )
        for name, why_not in (*reasons.items(), (RUNTIME, faults(job_of(document))))
    }


def inexpressible_fields(document: PlanDocument) -> tuple[str, ...]:
    """Fields of a plan that every open launcher refuses as they are; names of the document."""
    judged = [{each.field for each in refusals(document, launcher.name)} for launcher in rules.LAUNCHERS]
    return tuple(sorted(set.intersection(*judged)))


def _values(document: PlanDocument | Configuration) -> dict[str, Any]:
    """What the rules read of a plan: numbers, and columns over its stages."""
    layout, stages = document.parallelism, document.stages
    schedule = rules.SCHEDULES.index(layout.schedule) if layout.schedule in rules.SCHEDULES else len(rules.SCHEDULES)
    values: dict[str, Any] = {**known_values(document), **layout.model_dump()}
    values |= {
        "sequence_parallel": int(layout.sequence_parallel),
        "cp_type": CONTEXT_TYPES.index(layout.cp_type),
        "cp_ring": int(layout.cp_type in ("ring", "hierarchical")),
        "rank_order": RANK_ORDERS.index(layout.rank_order),
        "schedule": schedule,
        "zero_stage": _column([stage.zero_stage for stage in stages]),
        "reshard": _column([stage.reshard_after_forward for stage in stages]),
        "stage_layers": _column([stage.layers for stage in stages]),
        "recompute_layers": _column([stage.recompute.layers for stage in stages]),
    }
    for module in rules.RECOMPUTE_MODULES:
        values[f"recompute_{module}"] = _column([module in stage.recompute.set for stage in stages])
    for name in OFFLOADS:
        shares = [getattr(stage.offload, name.removeprefix("offload_")) for stage in stages]
        values[name] = np.array(shares, dtype=np.float64)
    return {**values, **_in_common(stages)}


def _in_common(stages: Sequence[StageChoice]) -> dict[str, int]:
    """How many different choices the stages make."""
    zero: set[Hashable] = {(stage.zero_stage, stage.reshard_after_forward) for stage in stages}
    offload: set[Hashable] = {tuple(share for _, share in stage.offload) for stage in stages}
    layered = [stage for stage in stages if stage.layers]  # a stage without layers recomputes nothing in any case
    recompute: set[Hashable] = {frozenset(stage.recompute.set) for stage in layered}
    if recompute == {frozenset({"full"})} and common_count(layered) is None:
        recompute = {stage.recompute.layers for stage in layered} | {"counted by chunk"}
    return {
        "distinct_zero": len(zero),
        "distinct_recompute": max(len(recompute), 1),
        "distinct_offload": len(offload),
    }


def common_count(stages: Sequence[StageChoice]) -> int | None:
    """The least count of recomputed layers a chunk, the same for all chunks, that gives every stage its own."""
    most = max(chunk.layers for stage in stages for chunk in stage.chunks)
    for count in range(1, most + 1):
        if all(sum(min(count, chunk.layers) for chunk in stage.chunks) == stage.recompute.layers for stage in stages):
            return count
    return None


def _column(values: Sequence[int]) -> NDArray[np.int64]:
    return np.array(values, dtype=np.int64)


def _of_stage(value: Any, stage: int) -> Any:
    return value[stage].item() if isinstance(value, np.ndarray) else value

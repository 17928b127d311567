"""The memory of one stage by cause, each as the cost model's formula."""

from collections.abc import Iterable
from dataclasses import dataclass

import sympy

from cost_models import allocator
from cost_models.symbols import PARTS
from planner.document import MEMORY_CAUSES
from planner.explain.formulas import Formula, constant, named, reduced, unit_of
from planner.explain.setting import Setting

__all__ = ["StageMemory", "parts_of", "stage_memory"]

OVERHEADS = ("communicators", "context", "fragmentation")
# Seconds that one collective makes up; all others are sums over operators.
EXCHANGES = ("gather_s", "reduce_s")
ALLOCATED = sympy.Symbol("allocated_bytes", nonnegative=True)
STRANDED = sympy.Symbol("stranded_bytes", nonnegative=True)


@dataclass(frozen=True)
class StageMemory:
    """The causes add up to `device_bytes`; those that a stage has none of are left out.

    `peak` says which phase of a step is the fullest: passes, loss or optimizer step.
    """

    causes: tuple[Formula, ...]
    allocated_bytes: float
    reserved_bytes: float
    device_bytes: float
    capacity_bytes: float
    peak: str


def stage_memory(setting: Setting) -> StageMemory:
    """What fills the stage's GPUs at their peak."""
    request = setting.plan.model.request
    causes = [_cause(setting, cause) for cause in MEMORY_CAUSES if setting.cost(cause)]
    return StageMemory(
        causes=tuple(causes),
        allocated_bytes=setting.cost("allocated_bytes"),
        reserved_bytes=setting.cost("reserved_bytes"),
        device_bytes=setting.cost("device_bytes"),
        capacity_bytes=request.capacity_bytes,
        peak=_peak(setting),
    )


def _cause(setting: Setting, cause: str) -> Formula:
    value = setting.cost(cause)
    if cause not in OVERHEADS:
        return setting.formula(cause, setting.plan.stage_expressions[cause], value, "bytes")
    request = setting.plan.model.request
    stranded = STRANDED if setting.cost("stranded_bytes") else 0
    expression = allocator.overheads(ALLOCATED, stranded, request.recipe, request.profile.context_bytes)[cause]
    if cause == "context":
        return constant(cause, value)
    return setting.formula(cause, expression, value, "bytes")


def _peak(setting: Setting) -> str:
    if setting.cost("pipeline_buffers") + setting.cost("activations") + setting.cost("logits_and_loss") == 0:
        return "optimizer step"
    workspace = setting.plan.stage_expressions["workspace"]
    left = reduced(workspace, setting.values([workspace])).free_symbols
    return "backward" if PARTS["layer_workspace_bytes"] in left else "loss"


def parts_of(setting: Setting, formulas: Iterable[Formula]) -> tuple[Formula, ...]:
    """The parts that some formulas name on this stage, written out themselves; seconds of operators as numbers."""
    read = named(formulas)
    known = setting.plan.part_expressions
    return tuple(_part(setting, name) for name in PARTS if name in read and name in known)


def _part(setting: Setting, name: str) -> Formula:
    expression = setting.plan.part_expressions[name]
    value = setting.values([PARTS[name]])[name]
    if unit_of(name) == "s" and not name.endswith(EXCHANGES):
        return constant(name, value, "s")
    return setting.formula(name, expression, value)

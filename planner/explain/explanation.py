"""`explain`: from a plan document to what its numbers are made of."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cost_models.specs import catalog
from cost_models.specs.profile import HardwareProfile
from planner.compose import time_breakdown
from planner.document import PlanDocument
from planner.errors import RequestError
from planner.explain.formulas import Formula, Meaning, legend, named
from planner.explain.memory import StageMemory, parts_of, stage_memory
from planner.explain.operators import OperatorCost, unit_operators
from planner.explain.seconds import StageSeconds, stage_seconds
from planner.explain.setting import Plan, Setting
from planner.fixed import planned

__all__ = ["Explanation", "StageExplanation", "StepExplanation", "explain", "notes"]

# Documents hold nine digits: step times closer than this are the same.
SAME = 1e-6


@dataclass(frozen=True)
class StepExplanation:
    """A step: `step_time_s` = `span_s` + `global_s`, and the same by cause on the rank with the most work.

    `measured_share` of it rests on measured kernels and links.
    """

    step_time_s: float
    span_s: float
    global_s: float
    num_microbatches: int
    schedule: str
    by_cause_s: Mapping[str, float]
    measured_share: float


@dataclass(frozen=True)
class StageExplanation:
    """One pipeline rank: its memory and its time by cause; `parts` are what their formulas name."""

    rank: int
    layers: int
    memory: StageMemory
    time: StageSeconds
    parts: tuple[Formula, ...]
    symbols: tuple[Meaning, ...]


@dataclass(frozen=True)
class Explanation:
    """What a plan's numbers are made of. `notes` tell where today's costs are not those of the document."""

    model: str
    step: StepExplanation
    operators: Mapping[str, tuple[OperatorCost, ...]]
    stages: tuple[StageExplanation, ...]
    notes: tuple[str, ...]


def explain(
    document: PlanDocument, ranks: Sequence[int] | None = None, profile: HardwareProfile | None = None
) -> Explanation:
    """The formulas of a plan with its numbers put in, of the stages `ranks` (all of them when None).

    Times rest on `profile`, else on the document's own. Raises RequestError for a stage that the
    plan does not have or a plan that the cost model cannot place.
    """
    plan = Plan(planned(document, profile))
    settings = _chosen(plan.stages(), ranks)
    operators = unit_operators(settings[0])
    return Explanation(
        model=document.model.name,
        step=_step(plan, document),
        operators=operators,
        stages=tuple(_stage(setting, document, operators) for setting in settings),
        notes=notes(document, plan),
    )


def _chosen(settings: list[Setting], ranks: Sequence[int] | None) -> list[Setting]:
    unknown = [rank for rank in ranks or () if not 0 <= rank < len(settings)]
    if unknown:
        message = f"--stage must be a stage of the plan, 0 to {len(settings) - 1}, got {unknown[0]}"
        raise RequestError(message)
    return settings if ranks is None else [settings[rank] for rank in ranks]


def _step(plan: Plan, document: PlanDocument) -> StepExplanation:
    candidate = plan.candidate
    global_s = float(plan.chosen["global_s"].max())
    return StepExplanation(
        step_time_s=candidate.objective_s,
        span_s=candidate.objective_s - global_s,
        global_s=global_s,
        num_microbatches=candidate.pipeline.layout["num_microbatches"],
        schedule=candidate.pipeline.schedule,
        by_cause_s=time_breakdown(candidate, plan.chosen),
        measured_share=document.predicted.measured_share,
    )


def _stage(
    setting: Setting, document: PlanDocument, operators: Mapping[str, tuple[OperatorCost, ...]]
) -> StageExplanation:
    memory, time = stage_memory(setting), stage_seconds(setting, operators)
    formulas = (*memory.causes, *time.formulas)
    parts = parts_of(setting, formulas)
    symbols = legend((*formulas, *parts), setting.symbols(named((*formulas, *parts))))
    return StageExplanation(setting.rank, document.stages[setting.rank].layers, memory, time, parts, symbols)


def notes(document: PlanDocument, plan: Plan) -> tuple[str, ...]:
    """What differs between the plan as its document has it and as it is costed now."""
    recorded_s, now_s = document.predicted.step_time_s, plan.candidate.objective_s
    if abs(now_s - recorded_s) <= SAME * recorded_s:
        return ()
    profile = plan.model.request.profile
    other = catalog.digest(profile) != document.digests.profile
    home = "that was given" if profile.provenance else "of this catalog"
    reason = f"its profile is not the {profile.name} profile {home}" if other else "the cost model has changed"
    return (f"The document says {recorded_s:.6g} s a step, costed anew it takes {now_s:.6g} s: {reason}.",)

"""Why a plan does not have other values: a rule forbids them, they need too much memory, or they are slower."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from cost_models.specs.units import format_bytes
from planner import compose, space
from planner.bands import TIE_BAND
from planner.document import MEMORY_CAUSES, PlanDocument
from planner.explain.explanation import notes
from planner.explain.setting import Plan
from planner.fitting import FULL, MARGIN
from planner.fixed import layout_of, planned, request_of
from planner.forbidden import BrokenRule, broken_rules
from planner.incumbent import Search
from planner.infeasible import nearest
from planner.not_searched import not_searched
from planner.predict import CostModel
from planner.report.quantities import duration, percent
from planner.request import PlanRequest, Progress
from planner.restriction import Restriction, has, parsed, restricted
from planner.search import searched

__all__ = ["Answer", "Difference", "Shortfall", "why_not"]

# Step times closer than this, relative, are equal.
EQUAL = 1e-6
# Wall time after which the best plan with the values so far is the answer.
LIMIT_S = 30.0
DEGREES = ("tp", "cp", "pp", "vpp", "ep", "dp", "micro_batch_size")


@dataclass(frozen=True)
class Difference:
    """One cause of time or memory in the plan and in the other one; seconds or bytes."""

    cause: str
    plan: float
    other: float

    @property
    def more(self) -> float:
        """How much more the other one has."""
        return self.other - self.plan


@dataclass(frozen=True)
class Shortfall:
    """The least demanding plan with the values: its fullest stage is `over_bytes` over, for these causes.

    `needed_bytes` includes the margin of the search. `causes` compare it with the fullest stage of the plan, bytes.
    """

    layout: Mapping[str, int]
    stage: int
    zero_stage: int
    recompute: Literal["nothing", "every layer", "a selective set"]
    needed_bytes: float
    capacity_bytes: float
    over_bytes: float
    causes: tuple[Difference, ...]


@dataclass(frozen=True)
class Answer:
    """Why not: `kind` says which of the answers it is, `text` says it in a sentence.

    `other` is the fastest plan with the values asked for, `time` and `memory` compare it with the plan by cause (the
    rank with the most work, the fullest GPU), `slower_by` is a fraction of the plan's step. `proven` is false where a
    limit stopped the search.
    """

    asked: str
    kind: Literal["same", "forbidden", "not_searched", "over_memory", "slower", "tie", "faster"]
    text: str
    rules: tuple[BrokenRule, ...] = ()
    shortfall: Shortfall | None = None
    other: PlanDocument | None = None
    step_time_s: float | None = None
    slower_by: float | None = None
    proven: bool = True
    time: tuple[Difference, ...] = ()
    memory: tuple[Difference, ...] = ()
    notes: tuple[str, ...] = ()


def why_not(
    document: PlanDocument,
    text: str,
    request: PlanRequest | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Answer:
    """Why the plan does not have the values in `text` (`tp=8,pp=2`), found by the same search, held to them.

    `request` is what the plan answers; without it, what its document tells of it. Raises RequestError or SpecError for
    a field that a layout does not have or a value that it cannot take.
    """
    restriction = parsed(text)
    if has(document, restriction):
        return Answer(restriction.text, "same", f"the plan has {restriction.text}")
    asked = request or request_of(document)
    held = _in_time(restricted(asked, restriction))
    if not len(space.layouts(held, space.meshes(held))["pp"]):
        return _forbidden(document, held, restriction)
    search = searched(Search(CostModel(held, offload=_offloads(document)), progress))
    if search.best is None:
        return _over_memory(document, search, restriction)
    return _compared(document, search, restriction, asked)


def _in_time(request: PlanRequest) -> PlanRequest:
    """The request with the limit of an answer, or its own where that is shorter.

    Values far from the best leave the bounds loose: to prove their best plan can take minutes, to find it does not.
    """
    return request.replaced(time_limit_s=min(request.time_limit_s or LIMIT_S, LIMIT_S))


def _offloads(document: PlanDocument) -> bool:
    return any(fraction for stage in document.stages for _, fraction in stage.offload)


def _forbidden(document: PlanDocument, held: PlanRequest, restriction: Restriction) -> Answer:
    """The rules that no layout with these values obeys; where there is none, the search does not know such layouts."""
    broken = broken_rules(held, layout_of(document.parallelism))
    if broken:
        messages = "; ".join(rule.message for rule in broken)
        return Answer(restriction.text, "forbidden", f"{restriction.text} is not legal: {messages}", rules=broken)
    unknown = "; ".join(not_searched(held))
    return Answer(restriction.text, "not_searched", f"{restriction.text} is legal, but not searched are: {unknown}")


def _over_memory(document: PlanDocument, search: Search, restriction: Restriction) -> Answer:
    request = search.request
    row, causes = nearest(search.model, space.layouts(request, space.meshes(request)))
    needed, capacity = causes["device_bytes"] * (1.0 + MARGIN), request.capacity_bytes
    usual = document.predicted.peak_memory_bytes.breakdown
    differences = [Difference(cause, getattr(usual, cause), causes[cause]) for cause in MEMORY_CAUSES]
    recompute: Literal["nothing", "every layer", "a selective set"] = "a selective set"
    if row["recompute"] in (0, FULL):
        recompute = "every layer" if row["recompute"] else "nothing"
    shortfall = Shortfall(
        layout={name: row[name] for name in DEGREES},
        stage=row["position"],
        zero_stage=row["zero_stage"],
        recompute=recompute,
        needed_bytes=needed,
        capacity_bytes=capacity,
        over_bytes=needed - capacity,
        causes=tuple(each for each in differences if each.plan or each.other),
    )
    told = (
        f"with {restriction.text} nothing fits: at the least {format_bytes(needed)} on a GPU of stage "
        f"{shortfall.stage} ({MARGIN:.0%} margin included), {format_bytes(needed - capacity)} more than the "
        f"{format_bytes(capacity)} that are usable"
    )
    ask = f"`plan check {restriction.text.replace(', ', ',')}`, with the flags of the job, lists what would make it fit"
    return Answer(restriction.text, "over_memory", told, shortfall=shortfall, notes=(ask,))


def _compared(document: PlanDocument, search: Search, restriction: Restriction, asked: PlanRequest) -> Answer:
    """The answer that sets the best plan with the values beside the plan, both costed by today's model."""
    plan = Plan(planned(document, asked.profile))
    other = compose.document(search)
    step_s, other_s = plan.candidate.objective_s, other.predicted.step_time_s
    slower_by = other_s / step_s - 1.0
    kind = _kind(slower_by)
    best = f"the best plan {'' if search.proven else 'found in time '}with {restriction.text}"
    sentence = _sentence(kind, best, step_s, other_s)
    return Answer(
        restriction.text,
        kind,
        f"{sentence}; {_missed(document, slower_by, asked)}" if kind == "faster" else sentence,
        other=other,
        step_time_s=step_s,
        slower_by=slower_by,
        proven=search.proven,
        time=_time(compose.time_breakdown(plan.candidate, plan.chosen), other.predicted.time_breakdown_s),
        memory=_memory(document, other),
        notes=notes(document, plan),
    )


def _kind(slower_by: float) -> Literal["slower", "tie", "faster"]:
    if slower_by < -EQUAL:
        return "faster"
    return "tie" if slower_by <= TIE_BAND else "slower"


def _sentence(kind: str, best: str, step_s: float, other_s: float) -> str:
    much, share = duration(abs(other_s - step_s)), percent(abs(other_s / step_s - 1.0), 2)
    best = f"{best} takes {duration(other_s)} a step"
    if kind == "faster":
        return f"{best}, {much} ({share}) less than the plan"
    if abs(other_s - step_s) <= EQUAL * step_s:
        return f"{best}, as long as the plan: a tie"
    slower = f"{best}, {much} ({share}) more than the plan"
    return (
        f"{slower}: a tie, for predictions of such a difference are off by up to {TIE_BAND:.0%}"
        if kind == "tie"
        else slower
    )


def _missed(document: PlanDocument, slower_by: float, asked: PlanRequest) -> str:
    """Why the search of the plan did not find a faster one."""
    certificate = document.certificate
    if certificate.status != "OPTIMAL":
        return "a limit stopped the search for the plan"
    if -slower_by <= certificate.gap:
        return f"the search for the plan was content within {percent(certificate.gap, 2)}"
    return f"the search for the plan had other limits, or does not look there: {'; '.join(not_searched(asked))}"


def _time(plan: Mapping[str, float], other: Mapping[str, float]) -> tuple[Difference, ...]:
    causes = dict.fromkeys((*plan, *other))
    return tuple(Difference(cause, plan.get(cause, 0.0), other.get(cause, 0.0)) for cause in causes)


def _memory(plan: PlanDocument, other: PlanDocument) -> tuple[Difference, ...]:
    first, second = (each.predicted.peak_memory_bytes.breakdown for each in (plan, other))
    pairs = [Difference(cause, getattr(first, cause), getattr(second, cause)) for cause in MEMORY_CAUSES]
    return tuple(each for each in pairs if each.plan or each.other)

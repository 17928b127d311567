"""What would help: single changes of a job or of a configuration that fit, each with its time and memory, by cost.

What changes neither the training nor the hardware comes first, then what changes the training, then the hardware; of
each what takes the fewest GPU-seconds a token. A change of a job is priced by the planner's own search, one of a
configuration by costing it as it stands: whoever applies it is told the same time and memory again.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import get_args

from planner.changes import Change, Kind, hardware_changes, software_changes, workload_changes
from planner.document import PlanDocument
from planner.feasibility import Trial, best_plan, trial
from planner.knobs import Alteration, alterations
from planner.proposal import Proposal, of_document
from planner.request import PlanRequest, Progress

__all__ = ["MOST", "Remedy", "of_infeasible", "of_plan", "of_proposal", "relief"]

MOST = 5
# A change that is to leave memory free leaves this much of what the plan takes.
FREED = 0.03
# Kinds of change after which a step is not the same one.
CHANGES_TRAINING: tuple[Kind, ...] = ("sequence", "batch")


@dataclass(frozen=True)
class Remedy:
    """One change, priced. `flags` make it on the command line, `setting` is the whole configuration for `plan check`.

    Seconds of a step, bytes of the fullest GPU; `gpu_seconds_per_token` counts every GPU of the job.
    """

    kind: Kind
    text: str
    flags: Mapping[str, str]
    setting: str
    env: str
    needs_hardware: bool
    step_time_s: float
    device_bytes: float
    capacity_bytes: float
    gpus: int
    tokens: int

    @property
    def gpu_seconds_per_token(self) -> float:
        """What a token costs."""
        return self.step_time_s * self.gpus / self.tokens

    @property
    def cost(self) -> tuple[int, float, float]:
        """The order: same training and hardware, other training, other hardware; GPU-seconds a token; memory."""
        return _class(self.kind, self.needs_hardware), round(self.gpu_seconds_per_token, 12), self.device_bytes


def _class(kind: Kind, needs_hardware: bool) -> int:
    return 2 if needs_hardware else int(kind in CHANGES_TRAINING)


def of_infeasible(request: PlanRequest, progress: Callable[[Progress], None] | None = None) -> tuple[Remedy, ...]:
    """Changes of a job of which nothing fits, the search's own knobs excepted, for it has tried them all."""
    changes = (*software_changes(request), *workload_changes(request, smaller=True))
    return _priced((*changes, *hardware_changes(request, host=False)), progress)[:MOST]


def of_plan(
    document: PlanDocument, request: PlanRequest, progress: Callable[[Progress], None] | None = None
) -> tuple[Remedy, ...]:
    """Changes of a job that has a plan which make a token cheaper, or a step faster; what they take and use."""
    changes = (*software_changes(request), *workload_changes(request, smaller=False))
    found = _priced((*changes, *hardware_changes(request, host=False)), progress)
    step_s, tokens = document.predicted.step_time_s, request.workload.tokens
    own = step_s * request.cluster.gpus / tokens
    better = (
        each
        for each in found
        if each.gpu_seconds_per_token < own * (1.0 - request.gap)
        or (each.needs_hardware and each.step_time_s < step_s * (1.0 - request.gap))
    )
    return tuple(better)[:MOST]


def relief(document: PlanDocument, request: PlanRequest) -> tuple[Remedy, ...]:
    """Changes of a plan that cost no hardware and leave more memory free: what they take, without another search."""
    limit = document.predicted.peak_memory_bytes.device * (1.0 - FREED)
    found = of_proposal(of_document(document, request), most=len(get_args(Kind)))
    return tuple(each for each in found if not each.needs_hardware and each.device_bytes < limit)[:MOST]


def _priced(changes: Iterable[Change], progress: Callable[[Progress], None] | None) -> tuple[Remedy, ...]:
    """The cheapest change of each kind that fits, planned in full.

    Which is the cheapest is judged by the first plan that is found of each, before.
    """
    trials = [(change, trial(change.request, told=False)) for change in changes]
    first: dict[Kind, tuple[Change, Trial]] = {}
    for change, found in trials:
        if found.fits and (change.kind not in first or _estimate(found) < _estimate(first[change.kind][1])):
            first[change.kind] = change, found
    remedies = [_planned(change, progress) for change, _ in first.values()]
    return tuple(sorted(remedies, key=lambda each: each.cost))


def _estimate(found: Trial) -> float:
    """GPU-seconds a token of the first plan."""
    request = found.request
    assert found.step_time_s is not None
    return found.step_time_s * request.cluster.gpus / request.workload.tokens


def _planned(change: Change, progress: Callable[[Progress], None] | None) -> Remedy:
    document = best_plan(change.request, progress)
    predicted = document.predicted
    return _remedy(change, "", predicted.step_time_s, predicted.peak_memory_bytes.device)


def _remedy(change: Change, setting: str, step_time_s: float, device_bytes: float) -> Remedy:
    request = change.request
    return Remedy(
        kind=change.kind,
        text=change.text,
        flags=change.flags,
        setting=setting,
        env=change.env,
        needs_hardware=change.needs_hardware,
        step_time_s=step_time_s,
        device_bytes=device_bytes,
        capacity_bytes=request.capacity_bytes,
        gpus=request.cluster.gpus,
        tokens=request.workload.tokens,
    )


def of_proposal(proposal: Proposal, most: int = MOST) -> tuple[Remedy, ...]:
    """Changes of a legal configuration after which it is legal and fits: of each kind the cheapest.

    Where the configuration obeys its target's rules, those that no longer would are left out.
    """
    fitting = [each for each in alterations(proposal) if not each.proposal.illegal]
    fitting = [each for each in fitting if each.proposal.figures.fits]
    cheapest: dict[Kind, Alteration] = {}
    for each in sorted(fitting, key=lambda each: _altered(each, "").cost):
        changed = each.proposal
        if each.change.kind not in cheapest and (proposal.inexpressible or not changed.inexpressible):
            cheapest[each.change.kind] = each
    chosen = list(cheapest.values())[:most]
    return tuple(_altered(each, each.proposal.text if each.proposal.alike else "") for each in chosen)


def _altered(alteration: Alteration, setting: str) -> Remedy:
    figures = alteration.proposal.figures
    return _remedy(alteration.change, setting, figures.step_time_s, figures.device_bytes)

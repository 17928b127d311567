"""Clusters of several kinds of GPUs: the fastest plan on one kind of them, with what the others would take.

Beside it, where they are asked for, a pipeline that has stages on every kind.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Any

from cost_models.specs import catalog
from planner import mixed_stages
from planner.document import PlanDocument
from planner.errors import InfeasibleError, Interrupted, LimitReached, RequestError
from planner.report.quantities import duration
from planner.request import PlanRequest, Progress, build_request

__all__ = ["plan_groups", "requests_of"]

CONTRADICTING = ("gpus", "gpu", "nodes", "gpus_per_node")


def requests_of(flags: Mapping[str, Any]) -> tuple[PlanRequest, ...]:
    """The request that the keywords of `build_request` stand for: one, or one for each group of a mixed cluster.

    All of them are of the same step, that of the largest group. Raises RequestError or SpecError.
    """
    named = isinstance(flags.get("cluster"), str)
    mixed = catalog.load_mixed_cluster(flags["cluster"]) if named else None
    if mixed is None:
        return (build_request(**flags),)
    for name in CONTRADICTING:
        if flags.get(name) is not None:
            flag = "--" + name.replace("_", "-")
            message = f"{flag} {flags[name]} contradicts --cluster {flags['cluster']}, whose groups say it themselves"
            raise RequestError(message)
    found = [
        build_request(**{**flags, "cluster": group.cluster, "gpu": group.gpu, "gpus": group.gpus})
        for group in mixed.groups
    ]
    largest = max(found, key=lambda request: request.cluster.gpus)
    return tuple(request.replaced(workload=largest.workload) for request in found)


@dataclass(frozen=True)
class _Outcome:
    """How the search of one group ended: its plan or why there is none, and what stopped it."""

    request: PlanRequest
    document: PlanDocument | None
    reason: str = ""
    stop: LimitReached | Interrupted | None = None


def plan_groups(
    requests: Sequence[PlanRequest], progress: Callable[[Progress], None] | None = None, *, jobs: int = 1
) -> PlanDocument:
    """The fastest of the plans of several groups, told what the others take; the plan of one where there is one.

    The time limit is of all of them together. Raises as `plan` does; what a stopped search had is compared as well.
    """
    from planner.search import plan

    if len(requests) == 1:
        return plan(requests[0], progress, jobs=jobs)
    outcomes: list[_Outcome] = []
    started = monotonic()
    for request in requests:
        outcomes.append(_planned(request.after(monotonic() - started), progress, jobs))
        if isinstance(outcomes[-1].stop, Interrupted):
            break
    found = [each for each in outcomes if each.document is not None]
    stop = next((each.stop for each in outcomes if each.stop is not None), None)
    if not found:
        if stop is not None:
            raise stop
        raise InfeasibleError(*(f"{_name(each.request)}: {each.reason}" for each in outcomes))
    document = _told(min(found, key=_step_s), outcomes)
    if stop is None and "meshes" in requests[0].search:
        document = mixed_stages.beside(document, requests, requests[0].after(monotonic() - started).time_limit_s)
    if isinstance(stop, LimitReached):
        raise LimitReached(document, str(stop))
    if stop is not None:
        raise Interrupted(document)
    return document


def _planned(request: PlanRequest, progress: Callable[[Progress], None] | None, jobs: int) -> _Outcome:
    from planner.search import plan

    try:
        return _Outcome(request, plan(request, progress, jobs=jobs))
    except InfeasibleError as error:
        return _Outcome(request, None, error.messages[0])
    except (LimitReached, Interrupted) as stop:
        return _Outcome(request, stop.document, str(stop), stop)


def _step_s(outcome: _Outcome) -> float:
    assert outcome.document is not None
    return outcome.document.predicted.step_time_s


def _name(request: PlanRequest) -> str:
    return f"{request.cluster.gpus:,} x {request.cluster.gpu.name}"


def _told(best: _Outcome, outcomes: Sequence[_Outcome]) -> PlanDocument:
    """The best group's plan, with a sentence for every other group."""
    assert best.document is not None
    others = [each for each in outcomes if each is not best]
    idle = sum(each.request.cluster.gpus for each in others)
    searched = "meshes" in best.request.search
    left_out = "" if searched else " Not searched: stages on several kinds of GPUs (--target runtime --search meshes)."
    sentences = [
        f"Of the kinds of GPUs of the cluster the plan uses {_name(best.request)}, the fastest by themselves; the "
        f"other {idle:,} GPUs are left idle.{left_out}"
    ]
    for each in others:
        if each.document is None:
            sentences.append(f"On {_name(each.request)}: {each.reason}.")
            continue
        longer = _step_s(each) / _step_s(best) - 1.0
        sentences.append(f"On {_name(each.request)} a step takes {duration(_step_s(each))}, {longer:.1%} longer.")
    return best.document.replaced(assumptions=(*best.document.assumptions, *sentences))

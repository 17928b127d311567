"""What the restriction to each launcher costs: the best plan of every one, found by the same search."""

from collections.abc import Callable

from planner import rules
from planner.document import PlanDocument
from planner.incumbent import Search
from planner.predict import CostModel
from planner.request import SEARCHED, PlanRequest, Progress, schedules_of
from planner.search import searched

__all__ = ["ADVICE_GAP", "advised"]

# The best plan of a launcher is told, not trained: it may be this far from the fastest that the launcher can express.
ADVICE_GAP = 0.01


def advised(
    document: PlanDocument, request: PlanRequest, progress: Callable[[Progress], None] | None = None
) -> PlanDocument:
    """The plan with the step time of the best plan of every launcher, under the recipe of the request.

    None stays where nothing fits that the launcher can express. Launchers with the same rules are searched once.
    `request` is what the plan answers.
    """
    found: dict[tuple[str, ...], float | None] = {}
    launchers = dict(document.launchers)
    for launcher in rules.LAUNCHERS:
        answer, key = launchers[launcher.name], _rules_of(launcher.name)
        if answer.expressible:
            continue
        if key not in found:
            found[key] = _best_step_s(_for(request, launcher.name), progress)
        launchers[launcher.name] = answer.replaced(best_step_time_s=found[key])
    return document.replaced(launchers=launchers)


def _for(request: PlanRequest, launcher: str) -> PlanRequest:
    """The request for one launcher: of its own schedules, unless others than the usual ones were asked for."""
    schedules = schedules_of(launcher) if request.schedules == SEARCHED else request.schedules
    return request.replaced(target=launcher, schedules=schedules)


def _rules_of(launcher: str) -> tuple[str, ...]:
    own = (rule.id for rule in rules.RULES if rule.kind == "express" and rule.launcher == launcher)
    return tuple(name.removeprefix(launcher) for name in own)


def _best_step_s(request: PlanRequest, progress: Callable[[Progress], None] | None) -> float | None:
    """Seconds of the fastest plan that the target can express, None when nothing fits."""
    request = request.replaced(gap=max(request.gap, ADVICE_GAP))
    for offload in (False, True):
        search = searched(Search(CostModel(request, offload=offload), progress))
        if search.best is not None:
            return search.best.objective_s
    return None

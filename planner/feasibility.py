"""Whether anything fits, found out as cheaply as that goes: states alone, else a search that ends at its first plan."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import inf

from cost_models.specs.parameters import parameters
from cost_models.specs.units import format_bytes
from planner import space
from planner.document import PlanDocument
from planner.errors import LimitReached
from planner.fitting import MARGIN
from planner.incumbent import Candidate, Search
from planner.infeasible import explain_infeasible, nearest
from planner.predict import CostModel
from planner.recipe_parts import PARTS
from planner.request import NO_TIME_S, PlanRequest, Progress
from planner.search import plan, searched
from planner.variants import searched_parts, variants

__all__ = ["Trial", "best_plan", "trial"]


@dataclass(frozen=True)
class Trial:
    """What was found of one job: a plan, not the best one, or why nothing fits. Bytes of the fullest GPU."""

    request: PlanRequest
    candidate: Candidate | None
    why_not: str = ""
    needed_bytes: float | None = None

    @property
    def fits(self) -> bool:
        """Whether some plan keeps everything on the device."""
        return self.candidate is not None

    @property
    def step_time_s(self) -> float | None:
        """Seconds of a step of the plan found; the best plan is faster or the same."""
        return self.candidate.objective_s if self.candidate else None

    @cached_property
    def device_bytes(self) -> float | None:
        """Bytes of the plan found, or of the least demanding one where none fits, its margin left out."""
        if self.candidate is None:
            return self.needed_bytes
        return self.candidate.device_bytes


def trial(request: PlanRequest, *, told: bool = True) -> Trial:
    """Whether the job fits without offload: exact, for the search is the planner's own. `told`: also say why not.

    Where variants of the recipe are searched, the first of them under which it fits, else the least demanding.
    """
    if searched_parts(request):
        return _of_variants(request, told=told)
    share = least_states_bytes(request)
    if share * (1.0 + MARGIN) > request.capacity_bytes:
        why = f"states alone take {format_bytes(share)} of each GPU's {format_bytes(request.capacity_bytes)}"
        return Trial(request, None, why, share)
    search = searched(Search(CostModel(request.replaced(time_limit_s=NO_TIME_S))))
    if search.best is not None or not told:
        return Trial(request, search.best)
    layouts = space.layouts(request, space.meshes(request))
    if not len(layouts["pp"]):
        return Trial(request, None, "; ".join(explain_infeasible(search).messages[:2]))
    _, causes = nearest(search.model, layouts)
    needed, capacity = causes["device_bytes"], request.capacity_bytes
    why = f"the least demanding layout needs {format_bytes(needed * (1.0 + MARGIN))} of {format_bytes(capacity)}"
    return Trial(request, None, why, needed)


def _of_variants(request: PlanRequest, *, told: bool) -> Trial:
    beside = tuple(part for part in request.search if part not in PARTS)
    trials = []
    for variant in variants(request):
        trials.append(trial(variant.request.replaced(search=beside), told=told))
        if trials[-1].fits:
            return trials[-1]
    return min(trials, key=lambda each: each.device_bytes or inf)


def best_plan(request: PlanRequest, progress: Callable[[Progress], None] | None = None) -> PlanDocument:
    """The plan of a job, or the best so far at its time limit: its certificate tells. Raises InfeasibleError."""
    try:
        return plan(request, progress)
    except LimitReached as limit:
        return limit.document


def least_states_bytes(request: PlanRequest) -> float:
    """Bytes of all states on each GPU, were they dealt to all GPUs evenly: in no layout has the fullest GPU less."""
    recipe = request.recipe
    of_parameter = recipe.weight_bytes + recipe.gradient_bytes + recipe.master_bytes + recipe.moment_bytes
    return of_parameter * parameters(request.model) / request.cluster.gpus

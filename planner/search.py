"""The search: from a request to a plan document, with a proof of how much better any other plan could be.

`plan` is the data path, in order. Layouts are visited best first by a lower bound; the options of their stages are
costed as columns; a dynamic program finds the best assignment under the schedule's bound; what survives goes to a
mixed-integer program whose cuts are critical paths of replayed pipelines; the replay is the step time of record.
"""

from collections.abc import Callable

from planner import compose, heterogeneous
from planner.best_first import best_first
from planner.candidates import promising, replayed, tightened
from planner.document import PlanDocument
from planner.errors import Interrupted, LimitReached
from planner.incumbent import Search
from planner.infeasible import explain_infeasible
from planner.predict import CostModel
from planner.recipe_search import over_variants
from planner.request import SEARCHED, PlanRequest, Progress, schedules_of
from planner.rivals import rivals
from planner.seeds import neighbours
from planner.variants import searched_parts

__all__ = ["plan"]


def plan(request: PlanRequest, progress: Callable[[Progress], None] | None = None, *, jobs: int = 1) -> PlanDocument:
    """The fastest plan that fits, with its certificate, found by `jobs` processes; it does not depend on them.

    More than one are spawned: a script that asks for them guards its main module. Raises InfeasibleError when nothing
    fits, LimitReached at `request.time_limit_s` and Interrupted on Ctrl-C, both with the best plan so far.
    """
    offload = "offload" in request.search
    search = _over_recipes(request, progress, jobs, offload=offload)
    if search.best is None and not offload:  # nothing fits in the GPUs' memory: with the host's, something may
        search = _over_recipes(request, progress, jobs, offload=True)
    if search.best is None:  # the project's own runtime has schedules that keep less
        search = _on_runtime(search, progress, jobs)
    if search.best is None:
        raise explain_infeasible(search)
    if search.limit_reached and not search.proven:
        message = f"the time limit of {request.time_limit_s:g} s was reached"
        raise LimitReached(compose.document(search), message)
    try:
        search.told += rivals(search)
        search.heterogeneous = heterogeneous.beside(search)
    except KeyboardInterrupt:
        raise Interrupted(compose.document(search)) from None
    return compose.document(search)


def _on_runtime(search: Search, progress: Callable[[Progress], None] | None, jobs: int) -> Search:
    """The search over all schedules of the project's own runtime; the one given where nothing fits there either."""
    request = search.request
    if request.target != "any" or request.schedules != SEARCHED:
        return search
    on_runtime = request.replaced(target="runtime", schedules=schedules_of("runtime"))
    found = _over_recipes(on_runtime, progress, jobs, offload="offload" in request.search)
    found.told += (
        "Nothing else fits: the plan is for the project's own runtime, as if asked for with --target runtime.",
    )
    return found if found.best is not None else search


def _over_recipes(
    request: PlanRequest, progress: Callable[[Progress], None] | None, jobs: int, *, offload: bool
) -> Search:
    """The search of the request, over all variants of the recipe that it asks for."""
    if not searched_parts(request):
        return searched(Search(CostModel(request, offload=offload), progress, jobs=jobs))
    search = over_variants(request, look_through, progress, offload=offload)
    if search.interrupted:
        raise Interrupted(compose.document(search) if search.best else None)
    return search


def searched(search: Search) -> Search:
    """The search, after everything that could hold the fastest plan was looked at.

    Raises Interrupted on Ctrl-C.
    """
    try:
        look_through(search)
    except KeyboardInterrupt:
        raise Interrupted(compose.document(search) if search.best else None) from None
    finally:
        search.workers.stop()
    return search


def look_through(search: Search) -> None:
    """None; everything that could hold the fastest plan is looked at."""
    for costs in best_first(search):
        for candidate in promising(search, costs):
            search.add(replayed(candidate))
    for candidate in search.open_candidates():
        search.close(candidate, tightened(search, candidate))
    neighbours(search)

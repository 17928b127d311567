"""Why the plan's schedule and not another: the best pipeline of each other one, what it lacks on the plan's mesh."""

from itertools import islice

from cost_models.specs.units import format_bytes
from planner import space
from planner.best_first import best_first
from planner.candidates import bounded, costed, replayed
from planner.fitting import MARGIN
from planner.incumbent import Candidate, Search
from planner.infeasible import nearest
from planner.predict import CostModel
from planner.report.quantities import duration, percent
from planner.request import PlanRequest
from planner.space import MESH

__all__ = ["rivals"]

# How near to its fastest pipeline another schedule is looked at, and in how many batches of layouts, the best first.
RIVAL_GAP, RIVAL_BATCHES = 0.02, 2


def rivals(search: Search) -> tuple[str, ...]:
    """A sentence for every schedule of the search other than the plan's: what its best pipeline takes, why it loses.

    None where the search knew the usual schedules only, or was cut short.
    """
    request, best = search.request, search.best
    if best is None or search.limit_reached or len(request.schedules) == 1 or not space.is_sliced(request):
        return ()
    if space.deepest(request) < 2:
        return ()
    pipelined = best.pipeline.layout["pp"] > 1
    others = [name for name in space.schedule_names(request) if not (pipelined and name == best.pipeline.schedule)]
    return tuple(_sentence(request.replaced(schedules=(name,), least_pp=2), best) for name in others)


def _sentence(held: PlanRequest, best: Candidate) -> str:
    """How much longer a schedule's best pipeline takes than the plan, or by how much the least one does not fit."""
    here, name = _on_mesh(held, best), held.schedules[0]
    # Where it fits on the plan's mesh, or there is none, it may fit: the search tells. Else it would try everything.
    nowhere = _shortage(held) if here else ""
    rival = None if nowhere else _searched(held.replaced(gap=RIVAL_GAP, time_limit_s=None)).best
    if rival is None:
        return f"Not {name}: {nowhere or _shortage(held) or 'nothing fits'}{here}."
    degrees = ", ".join(f"{axis.upper()} {rival.pipeline.layout[axis]}" for axis in MESH)
    longer_s = rival.objective_s - best.objective_s
    longer = f"{duration(longer_s)} or {percent(longer_s / best.objective_s)} longer than the plan"
    return f"Not {name}: its best pipeline found, {degrees}, takes {longer}{here}."


def _searched(request: PlanRequest) -> Search:
    """The search with the best plan of each layout by its bound: near enough to tell, without a proof."""
    search = Search(CostModel(request))
    for costs in islice(best_first(search), RIVAL_BATCHES):
        for pipeline in costed(search, costs):
            candidate = bounded(search, pipeline)
            if candidate is not None:
                search.add(replayed(candidate))
    return search


def _on_mesh(held: PlanRequest, best: Candidate) -> str:
    """What the schedule lacks on the mesh of the plan; nothing where it fits or the plan is no pipeline."""
    if best.pipeline.layout["pp"] == 1:
        return ""
    shortage = _shortage(held.replaced(fixed={name: best.pipeline.layout[name] for name in MESH}))
    return f"; on the plan's mesh {shortage}" if shortage else ""


def _shortage(request: PlanRequest) -> str:
    """By how much, and on which stage, the least demanding layout does not fit; empty where it does."""
    layouts = space.layouts(request, space.meshes(request))
    if not len(layouts["pp"]):
        return "no layout is legal"
    row, causes = nearest(CostModel(request), layouts)
    missing = causes["device_bytes"] * (1.0 + MARGIN) - request.capacity_bytes
    return f"it needs {format_bytes(missing)} too much on stage {row['position']}" if missing > 0 else ""

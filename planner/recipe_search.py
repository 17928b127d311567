"""The search over variants of the recipe: one certificate over the union of their spaces.

A variant is looked at for plans that beat the best one so far, whichever variant that is of: its search ends where its
bounds pass what is known. Of a variant without a plan of its own by then, the best plan is costed under it, to tell.
"""

from collections.abc import Callable
from dataclasses import replace
from math import inf
from time import monotonic

from planner.document import RecipeVariant
from planner.fitting import MARGIN
from planner.fixed import fixed_candidate, stages_of
from planner.incumbent import Candidate, Search
from planner.predict import CostModel
from planner.request import PlanRequest, Progress
from planner.variants import Variant, variants

__all__ = ["over_variants"]

NUMERICS = (
    "Recipes differ in their numerics: a faster one rounds products, moments or gradients to fewer bits, and may need "
    "more steps to the same loss; no step time shows that."
)

Look = Callable[[Search], None]


def over_variants(
    request: PlanRequest, look: Look, progress: Callable[[Progress], None] | None = None, *, offload: bool = False
) -> Search:
    """The search of the fastest variant, with what is proven of all of them and the table of what each costs.

    `look` goes through the space of one search. A variant takes the place of the request's own recipe only where it is
    faster by more than the gap. When it is interrupted, KeyboardInterrupt leaves it with `interrupted`.
    """
    started = monotonic()
    searches: list[tuple[Variant, Search]] = []
    ceiling_s = inf
    every = variants(request)
    try:
        for variant in every:
            held = variant.request.after(monotonic() - started)
            search = Search(CostModel(held, offload=offload), progress, ceiling_s=ceiling_s)
            searches.append((variant, search))
            look(search)
            if search.best is not None:
                ceiling_s = min(ceiling_s, search.best.objective_s)
    except KeyboardInterrupt:
        union = _union(searches, len(every))
        union.interrupted = True
        return union
    return _union(searches, len(every))


def _union(searches: list[tuple[Variant, Search]], count: int) -> Search:
    """The search with the best plan, told of what the others saw and proved; of variants not begun nothing is known."""
    best = searches[0][1]
    for _, search in searches:
        if search.best is not None and (best.best is None or search.best.objective_s < best.best.objective_s):
            best = search
    table = tuple(_told(variant, search, best.best) for variant, search in searches) if best.best else ()
    for _, search in searches:
        if search is not best:
            best.absorb(search)
    if len(searches) < count:
        best.drop("bound", 0, 0.0)
    best.recipes = table
    best.told = (f"{count} recipes are searched. {NUMERICS}", *best.told)
    return best


def _told(variant: Variant, search: Search, best: Candidate | None) -> RecipeVariant:
    """What a variant costs: its best plan, or where none was looked for, the best plan of all under its recipe."""
    assert best is not None
    candidate = search.best or _under(search.model, best)
    return RecipeVariant(
        **variant.parts,
        step_time_s=candidate.objective_s,
        bound_s=min(search.bound_s, candidate.objective_s),
        device_bytes=candidate.device_bytes,
        fits=candidate.device_bytes * (1.0 + MARGIN) <= variant.request.capacity_bytes,
        own_plan=search.best is not None,
    )


def _under(model: CostModel, best: Candidate) -> Candidate:
    """The plan of another variant, costed under this one's recipe."""
    candidate = fixed_candidate(model, best.pipeline.layout, stages_of(best))
    return replace(candidate, bound_s=0.0)

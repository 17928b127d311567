"""The certificate is true: the search against brute force on small spaces, and when it is cut short."""

from functools import lru_cache
from math import inf

import pytest

from planner import best_first, candidates, search
from planner.document import PlanDocument
from planner.errors import InfeasibleError, Interrupted, LimitReached
from planner.incumbent import Search
from planner.request import SCHEDULES, PlanRequest
from planner.space import counted_layouts, counted_meshes, layouts, meshes
from solver.certificate import ROUNDING
from tests.oracles.brute_force import BruteForce
from tests.oracles.spaces import EVERY_SCHEDULE, KINDS, ODD_HEADS, SHAPES, SLICES, SLOW_NETWORK, SPACES, Space

# Brute force takes seconds on the larger ones.
SLOW = [space for space in [*SPACES, *KINDS] if space.gpus >= 5 or space.seq_len == "4k"] + KINDS[1::2]
MANY = (EVERY_SCHEDULE, "flexible")
# The quick run takes every sixth space; the whole suite takes them all.
PARAMETERS = [
    pytest.param(space, id=space.name, marks=[pytest.mark.slow] if space in SLOW or index % 6 else [])
    for index, space in enumerate([*SPACES, *KINDS, *SLICES])
] + [
    pytest.param(space, id=space.name, marks=[pytest.mark.slow] if space.schedule in MANY or index % 4 else [])
    for index, space in enumerate(SHAPES)
]
PIPELINES = Space(4, 6, 2, 0.2, changes=ODD_HEADS + SLOW_NETWORK)


@lru_cache
def optimum_s(space: Space) -> float:
    """Seconds of the fastest plan of a space, by brute force; infinity when nothing fits."""
    return BruteForce(space.request()).best_s()


def check(document: PlanDocument, best_s: float) -> None:
    """Nothing is faster than the bound, and the plan is one of those that brute force tried."""
    certificate = document.certificate
    assert certificate.bound_s <= best_s * (1 + 1e-9)
    assert certificate.objective_s >= best_s * (1 - 1e-9)
    assert certificate.objective_s == document.predicted.step_time_s


@lru_cache
def planned(space: Space) -> PlanDocument | None:
    """The plan of a space without a gap, None when nothing fits."""
    try:
        return search.plan(space.request())
    except InfeasibleError:
        return None


def fits_on_the_device(space: Space) -> bool:
    """Whether the search has a plan that leaves the host's memory alone, as all those of brute force do."""
    document = planned(space)
    return document is not None and not any(fraction for stage in document.stages for _, fraction in stage.offload)


@pytest.mark.parametrize("space", PARAMETERS)
def test_the_search_finds_what_brute_force_finds(space: Space) -> None:
    """Without a gap the plan is the fastest of all; with one it is within it; the bound is never above the optimum."""
    best_s = optimum_s(space)
    assert fits_on_the_device(space) == (best_s < inf)
    for gap in (0.0, 0.03) if best_s < inf else ():
        document = search.plan(space.request(gap))
        check(document, best_s)
        assert document.certificate.status == "OPTIMAL"
        assert document.certificate.objective_s * (1 - gap) <= best_s * (1 + ROUNDING)
        assert document.certificate.gap <= gap + ROUNDING


@pytest.mark.slow
def test_the_spaces_are_worth_searching() -> None:
    """Among the optima are pipelines, interleaving, ZeRO, recomputing, uneven stages, idle GPUs and no plan at all."""
    found: set[str] = set()
    for space in SPACES:
        document = planned(space)
        if document is None or not fits_on_the_device(space):
            found.add("infeasible")
            continue
        parallelism, stages = document.parallelism, document.stages
        found.add(parallelism.schedule)
        found.update(f"zero{stage.zero_stage}" for stage in stages)
        found.update("+".join(stage.recompute.set) for stage in stages)
        found.update({"idle"} if parallelism.gpus_idle else set())
        found.update({"pipeline"} if len(stages) > 1 else set())
        found.update({"uneven"} if len({stage.layers for stage in stages}) > 1 else set())
        found.update({"partial"} if any(0 < stage.recompute.layers < stage.layers for stage in stages) else set())
    wanted = {"1f1b", "interleaved", "gpipe", "zero0", "zero1", "zero3", "full", "idle", "pipeline", "uneven"}
    assert wanted <= found


@pytest.mark.slow
def test_the_kinds_of_model_are_worth_searching() -> None:
    """Among the optima are split and whole experts over ranks, rings, exchanged heads, and chunks of unequal ends."""
    found: set[str] = set()
    for space in KINDS:
        document = planned(space)
        if document is None or not fits_on_the_device(space):
            continue
        parallelism, stages = document.parallelism, document.stages
        found.update(name for name in ("cp", "ep", "etp", "pp", "vpp") if getattr(parallelism, name) > 1)
        found.update({parallelism.cp_type} if parallelism.cp > 1 else set())
        found.update({"sharded over cp"} if parallelism.cp > parallelism.dp and stages[0].zero_stage else set())
        found.update(module for stage in stages for module in stage.recompute.set)
    assert {"cp", "ep", "etp", "pp", "vpp", "ring", "ulysses", "sharded over cp", "moe"} <= found


@pytest.mark.slow
def test_the_shapes_are_worth_searching() -> None:
    """Each schedule alone has a plan; uneven stages, groups of other sizes and an end without a layer are optimal."""
    found: set[str] = set()
    for space in [*SHAPES, *SLICES]:
        document = planned(space)
        if document is None or not fits_on_the_device(space):
            continue
        parallelism, stages = document.parallelism, document.stages
        found.add(parallelism.schedule)
        found.update({"grouped"} if parallelism.group_size not in (0, parallelism.pp) else set())
        found.update({"fewer"} if parallelism.num_microbatches < parallelism.pp else set())
        found.update({"uneven"} if len({stage.layers for stage in stages}) > 1 else set())
        found.update({"recomputed"} if any(stage.recompute.set for stage in stages) else set())
        found.update({"no layer"} if not stages[0].layers else set())
    assert set(SCHEDULES) | {"grouped", "fewer", "uneven", "recomputed", "no layer"} <= found | {"gpipe"}


@pytest.mark.parametrize("space", [SPACES[3], SPACES[8], SPACES[15], KINDS[2], KINDS[-3]], ids=lambda space: space.name)
def test_brute_force_may_leave_out_dominated_options(space: Space) -> None:
    """Its own short cut changes nothing: an option slower in all of its seconds is in no better plan."""
    assert BruteForce(space.request(), reduced=False).best_s() == optimum_s(space)


@pytest.mark.parametrize("function", ["refined", "bounded", "replayed", "tightened"])
@pytest.mark.parametrize(
    "space",
    [
        pytest.param(SPACES[10], id=SPACES[10].name),
        pytest.param(SPACES[16], id=SPACES[16].name, marks=pytest.mark.slow),
    ],
)
def test_an_interrupted_search_returns_its_best_with_a_true_bound(
    space: Space, function: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever Ctrl-C strikes, the document holds a real plan, and no plan of the whole space is under its bound."""
    module = {"refined": best_first, "bounded": candidates}.get(function, search)
    original = getattr(module, function)
    calls, last = 0, -1

    def counted(*arguments: object) -> object:
        nonlocal calls
        calls += 1
        if calls > last >= 0:
            raise KeyboardInterrupt
        return original(*arguments)

    monkeypatch.setattr(module, function, counted)
    search.plan(space.request())
    found = 0
    for last in range(min(calls, 5)):  # noqa: B007 - read by `counted`
        calls = 0
        with pytest.raises(Interrupted) as caught:
            search.plan(space.request())
        if caught.value.document is not None:
            check(caught.value.document, optimum_s(space))
            found += 1
    assert found


def test_an_interrupt_before_any_plan_has_no_document(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to return yet."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(best_first, "seeds", interrupt)
    with pytest.raises(Interrupted) as caught:
        search.plan(PIPELINES.request())
    assert caught.value.document is None


@pytest.mark.parametrize("space", [PIPELINES, *SPACES[7:10]], ids=lambda space: space.name)
def test_a_time_limit_returns_the_best_with_a_true_bound(space: Space) -> None:
    """Layouts that were not visited are in the bound: it is never above the optimum, and only a proof is optimal.

    Few layouts are looked at together: the limit strikes after them, and they may hold a proof.
    """
    request = space.request().replaced(time_limit_s=1e-9)
    if space is PIPELINES:
        with pytest.raises(LimitReached, match="time limit of 1e-09 s"):
            search.plan(request)
    document = stopped_early(request)
    check(document, optimum_s(space))
    assert (document.certificate.status == "OPTIMAL") is (document.certificate.gap <= request.gap)


def stopped_early(request: PlanRequest) -> PlanDocument:
    """The plan, or the best one when a limit is reached."""
    try:
        return search.plan(request)
    except LimitReached as limit:
        return limit.document


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    """The document is that of a search without one."""
    assert search.plan(PIPELINES.request().replaced(time_limit_s=1e6)) == search.plan(PIPELINES.request())


def test_every_layout_is_accounted_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each one listed was dropped for a reason or became a candidate."""
    monkeypatch.setattr(search.compose, "document", lambda searched: searched)
    for space in SPACES[::3]:
        try:
            searched = search.plan(space.request())
        except InfeasibleError:
            continue
        assert isinstance(searched, Search)
        assert set(searched.dropped) <= {"bound", "memory", "target", "target meshes"}
        seen = sum(searched.dropped.get(reason, 0) for reason in ("bound", "memory"))
        assert 0 <= searched.layouts - seen <= len(searched.tried)
        assert searched.dropped["bound"] > 0


@pytest.mark.parametrize("target", ["accelerate", "nanotron"])
def test_what_a_target_cannot_express_is_counted(target: str) -> None:
    """Meshes, and layouts on the meshes that are left: as many as there are more without its rules."""
    request = Space(4, 4, 4, 1.0).request().replaced(target=target)
    every, (own, fewer_meshes) = request.replaced(target="any"), counted_meshes(request)
    listed, fewer_layouts = counted_layouts(request, own)
    assert fewer_meshes == len(meshes(every)["pp"]) - len(own["pp"])
    assert fewer_layouts == len(layouts(every, own)["pp"]) - len(listed["pp"]) > 0
    told = next(each for each in search.plan(request).assumptions if each.startswith("Of "))
    assert f"{target} cannot express " in told
    assert (f" {fewer_meshes:,} meshes" in told) == (fewer_meshes > 0) == (target == "accelerate")

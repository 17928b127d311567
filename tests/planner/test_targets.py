"""Searches for one launcher: what it cannot express never comes out, and of what it can the fastest does."""

import itertools
import random
from dataclasses import replace
from functools import lru_cache
from math import inf

import pytest

from planner import compose, search
from planner.advice import advised
from planner.capability import PLAIN
from planner.document import PlanDocument
from planner.errors import InfeasibleError
from planner.fixed import layout_of
from planner.flag_values import TARGETS
from planner.incumbent import Search
from planner.launchers import refusals
from planner.overrides import Overrides
from planner.predict import CostModel
from planner.recipe_parts import with_optimizer
from planner.request import NO_TIME_S, PlanRequest, build_request, schedules_of
from planner.rules import LAUNCHERS, expressible, violations
from planner.space import OFFLOADS, known_values, sequence_parallel
from tests.oracles.spaces import EVERY_SECOND_HAS_EXPERTS, EXPERTS, LEADING_DENSE, ODD_HEADS, SLOW_NETWORK, Space
from tests.oracles.targets import BestExpressible

LONG = ("max_seq_len=131072",)
SPACES = [
    Space(2, 3, 4, 0.3),
    Space(3, 5, 2, 0.2, changes=ODD_HEADS),
    Space(4, 4, 4, 0.05),
    Space(4, 6, 2, 0.2, changes=ODD_HEADS + SLOW_NETWORK),
    Space(4, 6, 4, 0.02, gpus_per_node=1, changes=ODD_HEADS),
    Space(2, 3, 1, 0.3, seq_len="16k", changes=LONG),
    Space(4, 2, 1, 0.02, seq_len="32k", changes=LONG + SLOW_NETWORK),
    Space(4, 2, 4, 0.2, gpus_per_node=4, changes=EXPERTS),
    Space(3, 5, 3, 0.3, changes=ODD_HEADS + SLOW_NETWORK + LEADING_DENSE),
    Space(4, 7, 4, 0.1, changes=ODD_HEADS + EVERY_SECOND_HAS_EXPERTS),
]
QUICK = 10
PAIRS = [replace(space, target=launcher.name) for space in SPACES for launcher in LAUNCHERS]
JOBS, BLOCK, QUICK_JOBS = 1000, 125, 40


@pytest.mark.parametrize(
    "space",
    [
        pytest.param(
            space, id=f"{space.target}-{space.name}", marks=[] if at % QUICK == at // QUICK else pytest.mark.slow
        )
        for at, space in enumerate(PAIRS)
    ],
)
def test_the_fastest_plan_that_a_launcher_can_express_is_found(space: Space) -> None:
    """As fast as the best of all plans whose stages choose alike and that obey the launcher's rules."""
    request = space.request()
    best = search.searched(Search(CostModel(request))).best
    expected = BestExpressible(request).best_s()
    assert (best.objective_s if best else inf) == pytest.approx(expected, rel=1e-9)


@lru_cache
def job_on(gpus: int, gpus_per_node: int, slow: bool) -> PlanRequest:
    """A job on so many GPUs."""
    network = SLOW_NETWORK if slow else ()
    return build_request("llama3-8b", gpus, "80GB", gpus_per_node=gpus_per_node, overrides=network)


def random_job(seed: int) -> PlanRequest:
    """A small job of a random launcher; most of them fit, some only on the host, some not at all."""
    draw = random.Random(seed)
    heads, kv_heads = draw.choice([(7, 7), (8, 8), (8, 4), (8, 2), (12, 3)])
    layers = draw.randint(1, 7)
    kinds = [(), (), (), EXPERTS, LEADING_DENSE, EVERY_SECOND_HAS_EXPERTS]
    changes = [
        f"layers={layers}",
        f"hidden={128 * heads}",
        f"ffn={draw.choice([1536, 2048])}",
        f"heads={heads}",
        f"kv_heads={kv_heads}",
        f"vocab={draw.choice([4096, 4097, 32000])}",
        f"tie_embeddings={draw.choice(['true', 'false'])}",
        *(draw.choice(kinds) if layers > 1 else ()),
    ]
    target = draw.choice(LAUNCHERS).name
    job = job_on(draw.randint(1, 8), draw.choice([1, 2, 4, 8]), draw.random() < 0.5)
    request = job.replaced(
        model=Overrides.parse([f"model.{change}" for change in changes]).applied(job.model),
        workload=job.workload.replaced(
            seq_len=draw.choice([1024, 1024, 2048, 1000, 16384]), global_batch=draw.randint(1, 8)
        ),
        target=target,
        schedules=schedules_of(target),
        capacity_bytes=10 ** draw.uniform(9.1, 10.5),
        gap=0.02,
    )
    if target in ("megatron", "bridge") and draw.random() < 0.5:
        workload, recipe = with_optimizer(request.workload, request.recipe, "precision-aware")
        request = request.replaced(workload=workload, recipe=recipe)
    return request


def planned(request: PlanRequest) -> PlanDocument | None:
    """The plan of a request, None where nothing fits."""
    try:
        return search.plan(request)
    except InfeasibleError:
        return None


def emitted(request: PlanRequest) -> PlanDocument | None:
    """The first plan that the search of a request finds, on the device or else with the host; None where none fits.

    Its options and its layout are those that the best plan would be chosen from, at a part of the seconds.
    """
    for offload in (False, True):
        found = search.searched(Search(CostModel(request.replaced(time_limit_s=NO_TIME_S), offload=offload)))
        if found.best is not None:
            return compose.document(found)
    return None


def check(seeds: range, in_full: int = 1) -> None:
    """Plans of random jobs obey the rules of their target and all legal ones; most jobs have a plan.

    Every job number `in_full` is searched to the end, the others to their first plan.
    """
    found = 0
    for seed in seeds:
        request = random_job(seed)
        document = planned(request) if seed % in_full == 0 else emitted(request)
        if document is not None:
            found += 1
            layout = layout_of(document.parallelism)
            assert violations({**known_values(document), **layout}) == [], seed
            assert refusals(document, request.target) == (), seed
            own = document.launchers.get(request.target)
            assert own is None or own.expressible
    assert found > 0.6 * len(seeds)


def test_a_search_emits_nothing_that_its_target_cannot_express() -> None:
    """Forty random small jobs of all launchers."""
    check(range(QUICK_JOBS))


@pytest.mark.slow
@pytest.mark.parametrize("block", range(JOBS // BLOCK))
def test_a_search_emits_nothing_that_its_target_cannot_express_however_often(block: int) -> None:
    """A thousand random small jobs of all launchers, in blocks that can run side by side; one in ten in full."""
    check(range(QUICK_JOBS + block * BLOCK, QUICK_JOBS + (block + 1) * BLOCK), in_full=10)


@pytest.mark.parametrize("target", ["megatron", "deepspeed", "accelerate", "maxtext"])
def test_offload_of_a_target_is_what_it_can_express(target: str) -> None:
    """Where nothing fits on the device, states leave it in the launcher's own way, alike on all stages."""
    request = Space(2, 8, 2, 0.0, target=target).request(0.005)
    plan = planned(request.replaced(capacity_bytes=0.9 * request.capacity_bytes))
    assert plan is not None
    assert all(any(share for _, share in stage.offload) for stage in plan.stages)
    assert refusals(plan, target) == ()


@pytest.mark.parametrize(("dp", "found"), [(1, True), (2, False)])
def test_a_precision_aware_optimizer_is_stepped_where_megatron_has_it(dp: int, found: bool) -> None:
    """Without sharding the search finds the only copy of the states and none of two, which AdamW may have."""
    request = Space(2, 4, 4, 1.0, target="megatron").request().replaced(zero_stage=0, fixed={"dp": dp})
    workload, recipe = with_optimizer(request.workload, request.recipe, "precision-aware")
    assert planned(request) is not None
    plan = planned(request.replaced(workload=workload, recipe=recipe))
    assert (plan is not None) == found
    assert plan is None or refusals(plan, "megatron") == ()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["megatron", "deepspeed", "torchtitan", "axolotl", "maxtext"])
def test_offload_that_is_searched_for_a_target_is_its_best(target: str) -> None:
    """As fast as the best of all shares that every stage has alike, under every recompute set and count."""
    space = Space(2, 3, 2, -0.04, target=target, changes=ODD_HEADS, search=("offload",))
    request = space.request()
    quarters = (0.0, 0.25, 0.5, 0.75, 1.0)
    every = [dict(zip(OFFLOADS, shares, strict=True)) for shares in itertools.product(quarters, repeat=4)]
    facts = {**known_values(request), **PLAIN, "pp": 1, "dp": 1, "cp": 1, "reshard": 1, "stage_layers": 12}
    steps = []
    for shares in every:
        modes = [
            {**facts, **shares, "zero_stage": zero, "recompute_full": full} for zero in range(4) for full in (0, 1)
        ]
        if any(expressible(mode, target, "stage", fields=("offload",)) for mode in modes):
            steps.append(BestExpressible(request, shares).best_s())
    found = planned(request)
    assert len(steps) > 1
    assert (found.predicted.step_time_s if found else inf) == pytest.approx(min(steps), rel=1e-9)


def test_the_recipe_of_the_target_is_the_default() -> None:
    """By name or alias; a launcher without one has Megatron's, and a recipe that is named holds."""
    recipes = {target: build_request("llama3-8b", 8, "80GB", target=target) for target in TARGETS}
    names = {target: request.recipe.name for target, request in recipes.items()}
    assert names["torchtitan"] == "torchtitan"
    assert names["bridge"] == "megatron-bridge"
    assert names["accelerate"] == names["trainer"] == "trainer"
    assert names["any"] == names["runtime"] == names["axolotl"] == "megatron"
    assert build_request("llama3-8b", 8, "80GB", target="torchtitan", recipe="megatron").recipe.name == "megatron"
    assert "Only plans that torchtitan can express are searched." in recipes["torchtitan"].assumptions


def test_launchers_without_sequence_parallelism_are_planned_without() -> None:
    """Whatever the recipe says: TP stays a choice for them."""
    for target in TARGETS:
        request = build_request("llama3-8b", 8, "80GB", target=target, recipe="megatron")
        assert sequence_parallel(request) == (target not in ("deepspeed", "accelerate", "trainer", "axolotl"))


def test_advice_has_the_best_step_of_every_launcher() -> None:
    """None is faster than the plan; those that can express it take its time; each is what its own search finds."""
    request = Space(4, 6, 2, 0.2, changes=ODD_HEADS + SLOW_NETWORK).request(0.005)
    document = search.plan(request)
    told = advised(document, request)
    step_s = document.predicted.step_time_s
    for name, answer in told.launchers.items():
        if answer.expressible:
            assert answer.best_step_time_s == step_s
        else:
            own = planned(request.replaced(target=name, schedules=schedules_of(name)))
            assert answer.best_step_time_s is None if own is None else True
            if own is not None and answer.best_step_time_s is not None:
                assert answer.best_step_time_s == pytest.approx(own.predicted.step_time_s, rel=0.011)
                assert answer.best_step_time_s >= step_s * (1 - 0.006)
    assert told.replaced(launchers=document.launchers) == document


def test_advice_says_nothing_where_a_launcher_has_no_plan() -> None:
    """A batch of one on one GPU too small for anything but parts of the optimizer on the host."""
    request = Space(1, 4, 1, 0.0, changes=("vocab=64000",)).request(0.005)
    plan = planned(request.replaced(capacity_bytes=0.8 * request.capacity_bytes))
    assert plan is not None
    told = advised(plan, request.replaced(capacity_bytes=0.8 * request.capacity_bytes))
    assert told.launchers["automodel"].best_step_time_s is None
    assert not told.launchers["automodel"].expressible

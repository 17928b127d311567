"""Recipes searched on request: the best of all variants, what each costs, one certificate over all of them."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from planner import search
from planner.document import PlanDocument, dumps, loads
from planner.errors import Interrupted, LimitReached, RequestError
from planner.recipe_parts import LOSSES, loss_of, with_loss, with_optimizer
from planner.report.terminal import report
from planner.request import PlanRequest, build_request
from planner.variants import variants
from tests.oracles.brute_force import BruteForce
from tests.oracles.spaces import ODD_HEADS, SLOW_NETWORK, UNFUSED, Space

ALL = ("precision", "optimizer", "loss")
WIDE = ("vocab=64000",)
SPACES = [
    replace(Space(1, 4, 3, 0.02, changes=WIDE), search=ALL),
    replace(Space(2, 3, 2, 0.4, changes=WIDE), search=ALL),
    replace(Space(2, 4, 2, 0.1, changes=ODD_HEADS + SLOW_NETWORK), search=("optimizer", "precision")),
    replace(Space(2, 3, 2, 0.3, changes=UNFUSED + WIDE), search=("loss",)),
]


@pytest.mark.parametrize(
    "space",
    [pytest.param(space, id=space.name, marks=pytest.mark.slow if at == 1 else []) for at, space in enumerate(SPACES)],
)
def test_the_best_of_all_variants_is_found(space: Space) -> None:
    """As brute force over every variant; nothing of any of them is under the bound, nor a variant under its own."""
    request = space.request()
    best_s = {tuple(each.parts.values()): BruteForce(each.request).best_s() for each in variants(request)}
    document = search.plan(request)
    assert document.certificate.status == "OPTIMAL"
    assert document.certificate.objective_s == pytest.approx(min(best_s.values()), rel=1e-8)
    assert document.certificate.bound_s <= min(best_s.values()) * (1 + 1e-9)
    assert {(each.precision, each.optimizer, each.loss) for each in document.recipes} == best_s.keys()
    for each in document.recipes:
        assert each.bound_s <= best_s[each.precision, each.optimizer, each.loss] * (1 + 1e-9)
        if each.fits:
            assert each.step_time_s >= best_s[each.precision, each.optimizer, each.loss] * (1 - 1e-9)


def test_the_document_is_of_the_best_variant_and_warns_of_numerics() -> None:
    """Its workload, its recipe, a line for each variant; the report has them in a table; it reads back as it is."""
    document = search.plan(SPACES[1].request())
    fastest = min((each for each in document.recipes if each.fits), key=lambda each: each.step_time_s)
    own = (document.workload.precision, document.workload.optimizer, loss_of(document.recipe))
    assert own == (fastest.precision, fastest.optimizer, fastest.loss)
    assert any("numerics" in sentence for sentence in document.assumptions)
    assert not any("other precisions" in sentence for sentence in document.assumptions)
    assert dumps(loads(dumps(document))) == dumps(document)
    out = io.StringIO()
    Console(file=out, width=100).print(report(document))
    assert "Recipes" in out.getvalue()
    assert out.getvalue().count("precision-aware") >= len(LOSSES)


def test_a_recipe_that_is_no_faster_stays() -> None:
    """Within the gap the request's own recipe is kept."""
    roomy = replace(SPACES[3], memory=2.0)
    document = search.plan(roomy.request(0.5))
    assert loss_of(document.recipe) == loss_of(roomy.request().recipe)


def test_more_variants_never_slow_the_plan() -> None:
    """Each part that is searched adds to the union."""
    steps = [search.plan(replace(SPACES[1], search=ALL[:count]).request()).predicted.step_time_s for count in range(4)]
    assert steps == sorted(steps, reverse=True)


def names(request: PlanRequest) -> set[tuple[str, ...]]:
    """Precision, optimizer and loss of every variant."""
    return {tuple(each.parts.values()) for each in variants(request)}


def test_variants_are_those_that_the_gpu_and_the_target_have() -> None:
    """fp8 needs a GPU with it; Megatron has no block-wise moments, the Trainer no other small ones, we none."""
    asked = {"global_batch": 8, "search": "precision,optimizer"}
    h100, a100 = (names(build_request("llama3-8b", 8, gpu=gpu, **asked)) for gpu in ("h100", "a100"))
    assert {values[0] for values in h100} == {"bf16", "fp8"}
    assert {values[0] for values in a100} == {"bf16"}
    assert len(h100) == 6
    of = {
        target: {values[:2] for values in names(build_request("llama3-8b", 8, gpu="h100", target=target, **asked))}
        for target in ("megatron", "trainer", "deepspeed", "runtime")
    }
    assert ("fp8", "precision-aware") in of["megatron"]
    assert not any("adamw-8bit" in values for values in of["megatron"])
    assert of["trainer"] == {("bf16", "adamw"), ("bf16", "adamw-8bit")}
    assert of["deepspeed"] == of["runtime"] == {("bf16", "adamw")}


def test_parts_of_a_recipe_change_its_bytes_alone() -> None:
    """Two bytes and a scale for moments of 8 bits, bf16 moments and gradients; a loss by its bytes is the same loss."""
    request = build_request("llama3-8b", 8, gpu="h100", global_batch=8)
    workload, recipe = with_optimizer(request.workload, request.recipe, "adamw-8bit")
    assert (workload.optimizer, recipe.moment_bytes) == ("adamw-8bit", 2.03125)
    _, aware = with_optimizer(request.workload, request.recipe, "precision-aware")
    assert (aware.moment_bytes, aware.gradient_bytes) == (4, 2)
    assert with_optimizer(request.workload, request.recipe, "adamw") == (request.workload, request.recipe)
    for loss in LOSSES:
        assert loss_of(with_loss(request.recipe, loss)) == loss
    assert with_loss(request.recipe, loss_of(request.recipe)) == request.recipe


def test_flags_name_parts_of_the_recipe() -> None:
    """--precision and --optimizer are what the plan is made for; what there is not is refused by name."""
    request = build_request("llama3-8b", 8, gpu="h100", global_batch=8, precision="fp8", optimizer="adamw-8bit")
    assert (request.workload.precision, request.workload.optimizer) == ("fp8", "adamw-8bit")
    assert request.recipe.moment_bytes == 2.03125
    for wrong, message in (
        ({"precision": "fp4"}, "--precision must be one of bf16, fp8, got 'fp4'"),
        ({"optimizer": "adam"}, "--optimizer must be one of adamw, .*did you mean 'adamw'"),
        ({"search": "precison"}, "--search must be one or several of .*did you mean 'precision'"),
    ):
        with pytest.raises(RequestError, match=message):
            build_request("llama3-8b", 8, gpu="h100", **wrong)


def stopped(request: PlanRequest) -> PlanDocument:
    """The plan, or the best one when a limit is reached."""
    try:
        return search.plan(request)
    except LimitReached as limit:
        return limit.document


def test_a_time_limit_is_of_all_variants_together() -> None:
    """What was not looked at is in the bound: it is never above the best of all."""
    request = SPACES[1].request().replaced(time_limit_s=1e-9)
    best_s = search.plan(SPACES[1].request()).predicted.step_time_s
    document = stopped(request)
    assert document.certificate.bound_s <= best_s * (1 + 1e-9)
    assert document.certificate.objective_s >= best_s * (1 - 1e-9)


def test_an_interrupt_returns_the_best_variant_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of variants that were not begun nothing is known: the bound says so."""
    request, calls = SPACES[1].request(), 0
    look = search.look_through

    def interrupted(some: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 3:
            raise KeyboardInterrupt
        look(some)

    monkeypatch.setattr(search, "look_through", interrupted)
    with pytest.raises(Interrupted) as caught:
        search.plan(request)
    assert caught.value.document is not None
    assert len(caught.value.document.recipes) == 3
    assert caught.value.document.certificate.bound_s == 0

"""What a layer takes beyond its operators: found again where it is known, and part of plans where nothing hides it."""

from dataclasses import replace

import pytest

from cost_models.specs.beyond import BeyondOperators
from planner.beyond import InPlace, _of_operators, beyond_operators
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.space import layouts, meshes

BEYOND = BeyondOperators(forward_s=2e-3, forward_token_s=1e-6, backward_s=3e-3, backward_token_s=0.0)


def request(recipe: str = "runtime-cpu") -> PlanRequest:
    """The small model of the closed loop on one device."""
    return build_request(
        "data/loop/small-llama.toml", 1, gpu="l4", seq_len="256", global_batch=8, target="runtime", recipe=recipe
    ).replaced(fixed={"cp": 1})


def in_place(asked: PlanRequest, beyond: BeyondOperators) -> list[InPlace]:
    """Layers of every micro-batch that take so much more than their operators."""
    found = []
    for size, (forward_s, backward_s) in _of_operators(asked).items():
        tokens = 256 * size
        forward_s += beyond.forward_s + tokens * beyond.forward_token_s
        backward_s += beyond.backward_s + tokens * beyond.backward_token_s
        found.append(InPlace(size, tokens, forward_s, forward_s + backward_s))
    return found


def test_what_was_added_is_found() -> None:
    """A constant and a slope from four micro-batches; a layer that is faster than its operators adds nothing."""
    asked = request()
    found = beyond_operators([(asked, in_place(asked, BEYOND))])
    assert found is not None
    assert found.model_dump() == pytest.approx(BEYOND.model_dump(), abs=1e-9)
    faster = [replace(each, forward_s=0.0, both_ways_s=0.0) for each in in_place(asked, BEYOND)]
    assert beyond_operators([(asked, faster)]) == BeyondOperators(
        forward_s=0.0, forward_token_s=0.0, backward_s=0.0, backward_token_s=0.0
    )
    assert beyond_operators([(asked, [])]) is None


@pytest.mark.parametrize(("recipe", "counts"), [("runtime-cpu", 1), ("torchtitan-eager", 0)])
def test_it_is_part_of_a_layer_where_nothing_hides_it(recipe: str, counts: int) -> None:
    """Once a layer and pass on a processor, in proportion to a rank's tokens; not where the host runs ahead."""
    asked = request(recipe)
    columns = layouts(asked, meshes(asked))
    profile = asked.profile.replaced(beyond=BEYOND)
    plain, more = (CostModel(each).micro_batch(columns) for each in (asked, asked.replaced(profile=profile)))
    tokens = 256 * columns["micro_batch_size"]
    added = {"forward": 2e-3 + 1e-6 * tokens, "input_grad": 3e-3 + 0 * tokens, "weight_grad": 0 * tokens}
    for name, seconds in added.items():
        assert more[f"layer_{name}_s"] - plain[f"layer_{name}_s"] == pytest.approx(counts * seconds, abs=1e-12)
    assert more["head_forward_s"] == pytest.approx(plain["head_forward_s"])

"""What a layer takes beyond its operators: found again where it is known, and part of plans where nothing hides it."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.specs.beyond import BeyondOperators
from planner.beyond import InPlace, _of_operators, beyond_operators
from planner.fitting import with_recompute
from planner.layout_costs import LayoutCosts
from planner.options import stage_rows
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.space import SCHEDULES, layouts, meshes, take

BEYOND = BeyondOperators(
    forward_s=2e-3, forward_token_s=1e-6, backward_s=3e-3, backward_token_s=0.0, split_s=1e-3, split_token_s=2e-7
)


def request(recipe: str = "runtime-cpu", ranks: int = 1) -> PlanRequest:
    """The small model of the closed loop on one device, or on several that share its layers."""
    return build_request(
        "data/loop/small-llama.toml", ranks, gpu="l4", seq_len="256", global_batch=8, target="runtime", recipe=recipe
    ).replaced(fixed={"cp": 1, "tp": ranks})


def in_place(asked: PlanRequest, beyond: BeyondOperators, ranks: int = 1) -> list[InPlace]:
    """Layers of every micro-batch that take so much more than their operators."""
    found = []
    for size, (forward_s, backward_s) in _of_operators(asked).items():
        tokens = 256 * size // ranks
        forward_s += beyond.forward_s + tokens * beyond.forward_token_s
        backward_s += beyond.backward_s + tokens * beyond.backward_token_s
        split_s = forward_s + backward_s + beyond.split_s + tokens * beyond.split_token_s
        found.append(InPlace(size, tokens, forward_s, forward_s + backward_s, split_s))
    return found


def test_what_was_added_is_found() -> None:
    """A constant and a slope from four micro-batches; a layer that is faster than its operators adds nothing."""
    asked = request()
    found = beyond_operators([(asked, in_place(asked, BEYOND))])
    assert found is not None
    assert found.model_dump() == pytest.approx(BEYOND.model_dump(), abs=1e-9)
    faster = [replace(each, forward_s=0.0, both_ways_s=1e-9, split_s=0.0) for each in in_place(asked, BEYOND)]
    assert beyond_operators([(asked, faster)]) == BeyondOperators(
        forward_s=0.0, forward_token_s=0.0, backward_s=0.0, backward_token_s=0.0
    )
    assert beyond_operators([(asked, [])]) is None
    whole = [replace(each, split_s=None) for each in in_place(asked, BEYOND)]
    assert beyond_operators([(asked, whole)]) == found.replaced(split_s=0.0, split_token_s=0.0)


def test_small_micro_batches_count_as_large_ones() -> None:
    """By the share of a layer's seconds: a tenth more in the largest moves the line less than in the smallest.

    Seconds without the share would have the largest, eight times as long, decide alone.
    """
    asked = request()
    layers = in_place(asked, BEYOND)

    def line(more: int) -> float:
        found = [
            replace(each, forward_s=each.forward_s * (1.1 if each.micro_batch_size == more else 1)) for each in layers
        ]
        beyond = beyond_operators([(asked, found)])
        assert beyond is not None
        return beyond.forward_s + 256 * beyond.forward_token_s

    plain = BEYOND.forward_s + 256 * BEYOND.forward_token_s
    assert line(1) - plain > 0.5 * 0.1 * layers[0].forward_s
    assert abs(line(8) - plain) < 0.5 * (line(1) - plain)


def test_layers_that_ranks_share_have_seconds_of_their_own() -> None:
    """Found from those of two ranks, and counted where there are two; without them those of one rank count."""
    asked, alone = request(ranks=2), BEYOND.replaced(forward_s=5e-3)
    found = beyond_operators([(asked, in_place(asked, BEYOND, ranks=2))])
    assert found is not None
    assert found.model_dump() == pytest.approx(BEYOND.model_dump(), abs=1e-9)
    columns = layouts(asked, meshes(asked))
    assert set(columns["tp"].tolist()) == {2}
    seconds = [
        CostModel(asked.replaced(profile=asked.profile.replaced(**each))).micro_batch(columns)["layer_forward_s"]
        for each in ({}, {"beyond": alone}, {"beyond": alone, "beyond_shared": BEYOND})
    ]
    tokens = 128 * columns["micro_batch_size"]
    assert seconds[1] - seconds[0] == pytest.approx(5e-3 + 1e-6 * tokens)
    assert seconds[2] - seconds[0] == pytest.approx(2e-3 + 1e-6 * tokens)


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


@pytest.mark.parametrize(("recipe", "counts"), [("runtime-cpu", 1), ("torchtitan-eager", 0)])
def test_hops_and_splits_are_part_of_a_stage_where_nothing_hides_them(recipe: str, counts: int) -> None:
    """Of each pass what it sends and receives; of the weight gradient its layers behind the model's first chunk."""
    asked = request(recipe, ranks=2).replaced(fixed={"cp": 1, "tp": 1, "pp": 2})
    profile = asked.profile.replaced(beyond=BEYOND, hop_end_s=1e-3, hop_end_token_s=1e-6)
    beside = asked.profile.replaced(beyond=BEYOND.replaced(split_s=0.0, split_token_s=0.0))
    columns = layouts(asked, meshes(asked))
    columns = take(columns, np.isin(columns["schedule"], [SCHEDULES.index(name) for name in ("1f1b", "zb-h1", "zb-v")]))
    count = len(columns["pp"])
    rows = {"layout": np.arange(count), "position": np.arange(count) % 2, "layers": np.full(count, 4)}
    rows = with_recompute(stage_rows(columns, rows, asked.recipe), 0, 0 * rows["layers"]) | {"zero": 0 * rows["layers"]}
    found = []
    for each in (beside, profile):
        model = CostModel(asked.replaced(profile=each))
        found.append(model.stages(LayoutCosts.of(model, columns), rows, "all"))
    name = np.array(SCHEDULES)[columns["schedule"]]
    ends_s = np.where(name == "zb-v", 2, 1) * (1e-3 + 256e-6 * columns["micro_batch_size"])
    layers = np.select([name == "1f1b", rows["position"] == 1, name == "zb-h1"], [0, 4, 0], 2)
    split_s = layers * (BEYOND.split_s + 256 * columns["micro_batch_size"] * BEYOND.split_token_s)
    wanted = {"forward_s": ends_s, "input_grad_s": ends_s, "weight_grad_s": split_s, "compute_s": 2 * ends_s + split_s}
    for output, seconds in wanted.items():
        assert found[1][output] - found[0][output] == pytest.approx(counts * seconds, abs=1e-12)
    assert {"1f1b", "zb-h1", "zb-v"} == set(name)

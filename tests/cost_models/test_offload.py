"""Offload to the host: what it moves off the device, over the host link, and what it exposes."""

import numpy as np
import pytest

from cost_models.columns import evaluate
from tests.cost_models.setting import MODELS, RECIPES, lowered, random_columns

ROWS = 120
FRACTIONS = ("offload_weights", "offload_gradients", "offload_optimizer", "offload_activations")
MOVED = {
    "offload_weights": ("weights",),
    "offload_gradients": ("gradients",),
    "offload_optimizer": ("master_weights", "moments"),
    "offload_activations": ("activations",),
}
SECONDS = ("forward_s", "input_grad_s", "weight_grad_s", "first_s", "last_s", "global_s")
CASES = [("llama", "megatron"), ("tied", "waiting"), ("latent", "megatron"), ("routed", "waiting")]


def stage(model_name, recipe_name, columns, *, counting=False, **fractions):
    """Outputs of the stage expressions that read offload fractions, and the parts that they read."""
    micro_batch, exchange, whole = lowered(model_name, recipe_name, offload=True, counting=counting)
    parts = evaluate(micro_batch, columns, ROWS) | evaluate(exchange, columns, ROWS)
    away = {name: np.broadcast_to(np.float64(fractions.get(name, 0.0)), ROWS) for name in FRACTIONS}
    return parts | evaluate(whole, {**columns, **parts, **away}, ROWS)


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_nothing_offloaded_is_no_offload(model_name, recipe_name):
    """With fractions of zero the expressions equal those without offload: seconds to rounding, bytes to the byte."""
    columns = random_columns(MODELS[model_name], ROWS, seed=1)
    micro_batch, exchange, whole = lowered(model_name, recipe_name)
    parts = evaluate(micro_batch, columns, ROWS) | evaluate(exchange, columns, ROWS)
    plain = evaluate(whole, {**columns, **parts}, ROWS)
    offloaded = stage(model_name, recipe_name, columns)
    for name, values in plain.items():
        tolerance = {"rtol": 1e-10, "atol": 1e-15} if name.endswith("_s") else {"rtol": 0, "atol": 1e-3}
        np.testing.assert_allclose(offloaded[name], values, err_msg=name, **tolerance)


@pytest.mark.parametrize("model_name", ["llama", "latent", "routed"])
@pytest.mark.parametrize("name", FRACTIONS)
def test_fractions_move_exactly_their_bytes(model_name, name):
    """A fraction takes its part of one cause off the device and puts it on the host; only buffers are added."""
    columns = random_columns(MODELS[model_name], ROWS, seed=2)
    before = stage(model_name, "megatron", columns)
    assert not np.any(before["host_bytes"])
    for fraction in (0.25, 0.5, 0.75, 1.0):
        after = stage(model_name, "megatron", columns, **{name: fraction})
        moved = sum(fraction * before[cause] for cause in MOVED[name])
        np.testing.assert_allclose(after["host_bytes"], moved, rtol=1e-14)
        for cause in ("weights", "gradients", "master_weights", "moments", "activations"):
            left = 1 - fraction if cause in MOVED[name] else 1
            np.testing.assert_allclose(after[cause], left * before[cause], rtol=1e-14, err_msg=cause)
        allocated = before["allocated_bytes"] - moved + after["offload_buffers"]
        np.testing.assert_allclose(after["allocated_bytes"], allocated, rtol=1e-12)


def test_buffers_are_two_layers():
    """What is on its way is two layers of weights, gradients or activations; optimizer states never come back."""
    columns = random_columns(MODELS["llama"], ROWS, seed=3)
    flags = ("shard_optimizer", "shard_gradients", "shard_weights", "reshard", "recompute_ends", "recompute_layers")
    columns |= dict.fromkeys(flags, np.zeros(ROWS))
    plain = stage("llama", "megatron", columns)
    layer = {"offload_weights": 2 * plain["layer_parameters"], "offload_gradients": 4 * plain["layer_parameters"]}
    layer |= {"offload_activations": plain["layer_saved_bytes"], "offload_optimizer": np.zeros(ROWS)}
    for name, size in layer.items():
        values = stage("llama", "megatron", columns, **{name: 0.5})
        np.testing.assert_allclose(values["offload_buffers"], 2 * 0.5 * size, rtol=1e-14)


@pytest.mark.parametrize("model_name", ["llama", "latent"])
def test_what_passes_the_host_link(model_name):
    """Bytes a micro-batch: weights in for both passes, activations out and in, gradients in and out with the backward.

    Once a step: the first layer's weights, and for the host's optimizer gradients out and weights back.
    """
    columns = random_columns(MODELS[model_name], ROWS, seed=4)
    columns |= {"recompute_layers": np.zeros(ROWS), "recompute_ends": np.zeros(ROWS)}
    held = {"layer": columns["layers"], "embedding": columns["has_embedding"], "head": columns["has_head"]}
    plain = stage(model_name, "megatron", columns, counting=True)
    kept = sum(count * plain[f"{unit}_saved_bytes"] for unit, count in held.items())
    optimizer = plain["master_weights"] / RECIPES["megatron"].master_bytes
    dense, expert = plain["layer_parameters"], plain["layer_expert_parameters"]
    shards = dense / columns["dp_shard"] + expert / columns["expert_shard"]
    first_layer = 2 * np.where(columns["shard_weights"], shards, dense + expert)

    def added(name):
        values = stage(model_name, "megatron", columns, counting=True, **{name: 0.5})
        return {cost: values[cost] - plain[cost] for cost in SECONDS}

    wanted = {
        "offload_weights": dict.fromkeys(("forward_s", "input_grad_s"), plain["weights"] / 2)
        | {"first_s": first_layer / 2},
        "offload_gradients": {"input_grad_s": plain["gradients"]},
        "offload_activations": {"forward_s": kept / 2, "input_grad_s": kept / 2},
        "offload_optimizer": {"global_s": (4 + 2) * optimizer / 2},
    }
    for name, costs in wanted.items():
        for cost, value in added(name).items():
            np.testing.assert_allclose(value, costs.get(cost, np.zeros(ROWS)), rtol=1e-9, atol=1e3, err_msg=name)


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_offloading_more_never_takes_less_time(model_name, recipe_name):
    """The seconds of every pass rise with each fraction, whatever else is offloaded; none is below its compute."""
    columns = random_columns(MODELS[model_name], ROWS, seed=5)
    rng = np.random.default_rng(6)
    for name in FRACTIONS:
        others = {other: float(rng.choice([0, 0.25, 1])) for other in FRACTIONS if other != name}
        steps = [stage(model_name, recipe_name, columns, **others, **{name: f}) for f in (0.0, 0.25, 0.5, 0.75, 1.0)]
        for less, more in zip(steps, steps[1:], strict=False):
            for cost in SECONDS:
                assert np.all(more[cost] >= less[cost] * (1 - 1e-12)), (name, cost)


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_offloaded_chunks_add_up_to_their_stage(model_name, recipe_name):
    """Seconds of a micro-batch in two chunks add up to those of the stage, whatever is offloaded and recomputed."""
    columns = random_columns(MODELS[model_name], ROWS, seed=7) | {"has_head": np.zeros(ROWS)}
    rng = np.random.default_rng(8)
    layers = np.floor(rng.random(ROWS) * columns["layers"])
    again = np.minimum(layers, columns["recompute_layers"])
    first = columns | {"layers": layers, "recompute_layers": again}
    second = {"layers": columns["layers"] - layers, "recompute_layers": columns["recompute_layers"] - again}
    second = columns | second | {"has_embedding": np.zeros(ROWS)}
    fractions = {name: rng.choice([0, 0.25, 0.5, 1], ROWS) for name in FRACTIONS}
    whole, *parts = (stage(model_name, recipe_name, rows, **fractions) for rows in (columns, first, second))
    for cost in ("forward_s", "input_grad_s", "weight_grad_s"):
        np.testing.assert_allclose(parts[0][cost] + parts[1][cost], whole[cost], rtol=1e-12, err_msg=cost)

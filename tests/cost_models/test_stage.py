"""The three expressions, lowered, against the same model written by hand; additivity; volumes of state exchange."""

import os
import subprocess
import sys

import numpy as np
import pytest

from cost_models import symbols
from cost_models.columns import evaluate
from cost_models.lower import lower
from cost_models.memory import CAUSES
from cost_models.slicing import pipeline_exchange_costs
from cost_models.stage import exchange_costs, micro_batch_costs, stage_costs
from cost_models.vocabulary import COMMUNICATIONS
from tests.cost_models.by_hand import ByHand
from tests.cost_models.setting import (
    CLUSTER,
    CONTEXT_BYTES,
    DENSE,
    MODELS,
    PROFILE,
    RECIPES,
    functions,
    lowered,
    model_columns,
    random_columns,
    row,
)

ROWS = 150
BY_HAND = [(model, recipe) for model in DENSE for recipe in RECIPES]
CASES = [*BY_HAND, ("latent", "megatron"), ("windows", "before flash"), ("routed", "waiting")]
MICRO_BATCH = ("forward_s", "input_grad_s", "weight_grad_s")


def evaluated(model_name, recipe_name, columns, rows):
    """Outputs of the three expressions, the cheap one fed by the dear two."""
    micro_batch, exchange, whole = lowered(model_name, recipe_name)
    parts = evaluate(micro_batch, columns, rows) | evaluate(exchange, columns, rows)
    return parts, evaluate(whole, {**columns, **parts}, rows)


def assert_equal(values, index, expected):
    for name, wanted in expected.items():
        assert values[name][index] == pytest.approx(wanted, rel=1e-11, abs=1e-18), name


@pytest.mark.parametrize(("model_name", "recipe_name"), BY_HAND)
def test_units_equal_the_model_written_by_hand(model_name, recipe_name):
    """Seconds of a layer and of the ends equal the hand-written roofline sums, in every form of TP and CP."""
    model, recipe = MODELS[model_name], RECIPES[recipe_name]
    hand = ByHand(model, recipe, CLUSTER, PROFILE, CONTEXT_BYTES)
    columns = random_columns(model, ROWS, seed=1)
    values = evaluate(lowered(model_name, recipe_name)[0], columns, ROWS)
    for index in range(ROWS):
        assert_equal(values, index, hand.layer(row(columns, index)) | hand.ends(row(columns, index)))


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_stages_equal_the_model_written_by_hand(model_name, recipe_name):
    """Seconds and bytes by cause of a stage equal the hand-written branches, for both values of every flag."""
    model, recipe = MODELS[model_name], RECIPES[recipe_name]
    hand = ByHand(model, recipe, CLUSTER, PROFILE, CONTEXT_BYTES)
    columns = random_columns(model, ROWS, seed=2)
    parts, values = evaluated(model_name, recipe_name, columns, ROWS)
    for index in range(ROWS):
        one, part = row(columns, index), row(parts, index)
        assert_equal(values, index, hand.stage_seconds(one, part) | hand.stage_memory(one, part))


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_exchanges_equal_ring_collectives(model_name, recipe_name):
    """Gathers and reductions are ring collectives of parameters in the shard and replica groups, experts in theirs."""
    model, recipe = MODELS[model_name], RECIPES[recipe_name]
    hand = ByHand(model, recipe, CLUSTER, PROFILE, CONTEXT_BYTES)
    columns = random_columns(model, ROWS, seed=3)
    values = evaluate(lowered(model_name, recipe_name)[1], columns, ROWS)
    for index in range(ROWS):
        one = row(columns, index)
        r, n, stride = one["dp_shard"], one["dp_replicate"], one["dp_stride"]
        experts = one["expert_shard"], one["expert_stride"]
        for unit in ("layer", "embedding", "head"):
            size = recipe.gradient_reduce_bytes * values[f"{unit}_parameters"][index]
            routed = recipe.gradient_reduce_bytes * values[f"{unit}_expert_parameters"][index]
            sharded = hand.gather(size, r, stride) + hand.reduce(size / r, n, one["replicate_stride"])
            gathered, gathered_routed = (
                each / recipe.gradient_reduce_bytes * recipe.parameter_gather_bytes for each in (size, routed)
            )
            wanted = {
                "reduce_s": sharded + hand.gather(routed, *experts),
                "all_reduce_s": hand.reduce(size, r * n, stride) + hand.reduce(routed, *experts),
                "gather_s": hand.gather(gathered, r, stride) + hand.gather(gathered_routed, *experts),
            }
            assert_equal(values, index, {f"{unit}_{name}": seconds for name, seconds in wanted.items()})
        assert_equal(values, index, {"gradient_norm_reduce_s": hand.reduce(4, one["world"], 1)})


def test_tied_ends_reduce_over_the_link_between_them():
    """The two copies of a tied embedding meet over NVLink when the pipeline lies in one node, else over the network."""
    hand = ByHand(MODELS["tied"], RECIPES["megatron"], CLUSTER, PROFILE, CONTEXT_BYTES)
    columns = random_columns(MODELS["tied"], ROWS, seed=4)
    values = evaluate(lowered("tied", "megatron")[1], columns, ROWS)
    for index in range(ROWS):
        one = row(columns, index)
        size = 4 * one["padded_vocab"] * one["hidden"] / one["tp"]
        apart = 1 if one["pp"] * one["pp_stride"] <= 8 else 8
        wanted = hand.reduce(size, 2, apart) if one["ends_apart"] else 0.0
        assert_equal(values, index, {"tied_reduce_s": wanted})
    assert not np.any(evaluate(lowered("llama", "megatron")[1], columns, ROWS)["tied_reduce_s"])


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_parts_add_up_to_a_micro_batch(model_name, recipe_name):
    """Compute, collectives of each group, recompute and exchange are the micro-batch; none is below zero."""
    columns = random_columns(MODELS[model_name], ROWS, seed=5)
    _, values = evaluated(model_name, recipe_name, columns, ROWS)
    groups = [f"{name}_s" for name in COMMUNICATIONS]
    parts = [values[name] for name in ("compute_s", *groups, "recompute_s", "exchange_s")]
    np.testing.assert_allclose(
        np.sum(parts, axis=0), np.sum([values[name] for name in MICRO_BATCH], axis=0), rtol=1e-12
    )
    for name, column in values.items():
        assert np.all(column >= 0), name


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_chunks_add_up_to_their_stage(model_name, recipe_name):
    """Seconds of a micro-batch in the chunks of a random split of a stage add up to those of the stage."""
    rng = np.random.default_rng(6)
    model = MODELS[model_name]
    columns = random_columns(model, 60, seed=7)
    _, whole = evaluated(model_name, recipe_name, columns, 60)
    for index in range(60):
        one, chunks = row(columns, index), int(rng.integers(2, 6))
        if one["has_embedding"] and one["has_head"]:
            continue  # both ends on one stage: there is one rank, and one chunk
        sizes = rng.multinomial(int(one["layers"]), np.ones(chunks) / chunks)
        recomputed = rng.multivariate_hypergeometric(sizes, int(one["recompute_layers"]))
        split = {name: np.full(chunks, value) for name, value in one.items()}
        split |= {"layers": sizes, "recompute_layers": recomputed}
        split["has_embedding"] = one["has_embedding"] * (np.arange(chunks) == 0)
        split["has_head"] = one["has_head"] * (np.arange(chunks) == chunks - 1)
        _, parts = evaluated(model_name, recipe_name, split, chunks)
        for name in MICRO_BATCH:
            assert parts[name].sum() == pytest.approx(whole[name][index], rel=1e-13)


@pytest.mark.parametrize(("model_name", "recipe_name"), CASES)
def test_causes_add_up_to_the_device(model_name, recipe_name):
    """Bytes by cause add up to what the device reports."""
    columns = random_columns(MODELS[model_name], 2000, seed=8)
    _, values = evaluated(model_name, recipe_name, columns, 2000)
    np.testing.assert_allclose(np.sum([values[cause] for cause in CAUSES], axis=0), values["device_bytes"], rtol=1e-12)


def test_recomputing_a_whole_layer_takes_its_forward():
    """Full recompute takes a forward of the layer, its collectives and its launches included."""
    columns = random_columns(MODELS["llama"], ROWS, seed=9) | {"recompute_full": np.ones(ROWS)}
    values = evaluate(lowered("llama", "megatron")[0], columns, ROWS)
    np.testing.assert_allclose(values["layer_recompute_s"], values["layer_forward_s"], rtol=1e-13)


def test_small_layers_are_bound_by_the_host():
    """A tiny layer takes what its launches take, a large one does not notice them, CUDA graphs take them away."""
    model = MODELS["tied"]
    one = {**model_columns(model), "tp": 1, "cp": 1, "sequence_parallel": 0, "padded_vocab": 50304}
    one |= dict.fromkeys(map(str, symbols.RECOMPUTE_FLAGS.values()), 0)
    one |= {"cp_heads": 1, "cp_ring": 0, "document_mask_imbalance": 1, "micro_batch_size": 1}
    free = lower(
        micro_batch_costs(model, RECIPES["megatron"]), functions(RECIPES["megatron"].replaced(cuda_graphs=True))
    )
    bound = lowered("tied", "megatron")[0]
    small, large = one | {"seq_len": 64}, one | {"seq_len": 65536}
    kernels, products = 12, 4
    assert bound(small)["layer_forward_s"] == pytest.approx(kernels * PROFILE.host_launch_s)
    backward = bound(small)["layer_input_grad_s"] + bound(small)["layer_weight_grad_s"]
    assert backward == pytest.approx((kernels + products) * PROFILE.host_launch_s)
    assert free(small)["layer_forward_s"] < bound(small)["layer_forward_s"]
    assert free(large)["layer_forward_s"] == bound(large)["layer_forward_s"]


def wire_bytes(zero, reshard, micro_batches, shard, replicate, recipe_name="megatron"):
    """Bytes on the wire of one rank in one step for state exchange, and the rank's parameters."""
    columns = random_columns(MODELS["llama"], 1, seed=10)
    columns |= {"dp_shard": [shard], "dp_replicate": [replicate], "has_embedding": [1], "has_head": [1], "layers": [8]}
    flags = {"shard_optimizer": zero >= 1, "shard_gradients": zero >= 2, "shard_weights": zero >= 3, "reshard": reshard}
    columns |= {name: [float(flag)] for name, flag in flags.items()}
    micro_batch, exchange, whole = lowered("llama", recipe_name, counting=True)
    parts = evaluate(micro_batch, columns, 1) | evaluate(exchange, columns, 1)
    parts["gradient_norm_reduce_s"] = np.zeros(1)
    values = evaluate(whole, {**columns, **parts}, 1)
    total = micro_batches * values["exchange_s"] + values["first_s"] + values["last_s"] + values["global_s"]
    parameters = 8 * parts["layer_parameters"] + parts["embedding_parameters"] + parts["head_parameters"]
    return float(total[0]), float(parameters[0])


@pytest.mark.parametrize("recipe_name", ["megatron", "waiting"])
@pytest.mark.parametrize(("shard", "m"), [(2, 1), (8, 4), (64, 32)])
def test_volumes_of_state_exchange(shard, m, recipe_name):
    """Bytes a step: DDP 2gP, ZeRO-1 gP + 2P, ZeRO-2 m gP + 2P, FSDP kept the same, resharded m (2 * 2P + gP)."""
    ring, g = (shard - 1) / shard, 4
    per_parameter = {
        (0, False): 2 * g,
        (1, False): g + 2,
        (2, False): m * g + 2,
        (3, False): m * g + 2,
        (3, True): m * (2 * 2 + g),
    }
    for (zero, reshard), wanted in per_parameter.items():
        total, parameters = wire_bytes(zero, reshard, m, shard, 1, recipe_name)
        assert total == pytest.approx(ring * wanted * parameters, rel=1e-12), (zero, reshard)


def test_volumes_of_hybrid_sharding():
    """HSDP adds an all-reduce of gP/r over the replicas to what the shard group moves."""
    shard, replicate, g = 8, 4, 4
    total, parameters = wire_bytes(1, False, 3, shard, replicate)
    shards, replicas = (shard - 1) / shard * (g + 2), 2 * (replicate - 1) / replicate * g / shard
    assert total == pytest.approx((shards + replicas) * parameters, rel=1e-12)
    unsharded, _ = wire_bytes(0, False, 3, shard, replicate)
    assert unsharded == pytest.approx(2 * 31 / 32 * g * parameters, rel=1e-12)


@pytest.mark.parametrize("model_name", ["tied", "windows"])
def test_tied_states_are_exchanged_once(model_name):
    """A stage that holds both ends of a tied model exchanges the shared matrix once, and all else of the head."""
    columns = random_columns(MODELS[model_name], 1, seed=11)
    columns |= {"dp_shard": [8.0], "dp_replicate": [1.0], "has_embedding": [1], "has_head": [1], "layers": [4]}
    columns |= {"shard_optimizer": [1], "shard_gradients": [0], "shard_weights": [0], "reshard": [0]}
    micro_batch, exchange, whole = lowered(model_name, "megatron", counting=True)
    parts = evaluate(micro_batch, columns, 1) | evaluate(exchange, columns, 1)
    values = evaluate(whole, {**columns, **parts}, 1)
    parameters = 4 * parts["layer_parameters"] + parts["embedding_parameters"]
    parameters += parts["head_parameters"] - parts["shared_parameters"]
    np.testing.assert_allclose(values["first_s"] + values["last_s"], 7 / 8 * 6 * parameters, rtol=1e-12)


def test_parts_are_symbols_of_the_stage_expression():
    """Every output of the dear expressions is declared once as a symbol, and every symbol of an expression is known."""
    for model in MODELS.values():
        # One that adds up gradients apart, and here lays out what it gathers and reduces, too, on a processor.
        moved = {"parameter_copy_bytes": 8, "gradient_copy_bytes": 14}
        recipe = RECIPES["before flash"].replaced(**moved, host_runs_ahead=False)
        dear = micro_batch_costs(model, recipe, sliced=True) | exchange_costs(model, recipe)
        dear |= pipeline_exchange_costs(model, recipe)
        assert set(dear) == set(symbols.PARTS)
        whole = stage_costs(model, recipe, 0, sliced=True)
        expressions = [value for value in (*dear.values(), *whole.values()) if hasattr(value, "free_symbols")]
        used = {symbol.name for value in expressions for symbol in value.free_symbols}
        assert used <= set(symbols.MEANINGS)


SOURCE_DIGEST = """
import hashlib
from cost_models.lower import lower
from cost_models.stage import exchange_costs, micro_batch_costs, stage_costs
from tests.cost_models.setting import MODELS, RECIPES, functions
model, recipe = MODELS["tied"], RECIPES["megatron"]
costs = (micro_batch_costs(model, recipe), exchange_costs(model, recipe), stage_costs(model, recipe, 0))
print(hashlib.sha256("".join(lower(each, functions(recipe)).source for each in costs).encode()).hexdigest())
"""


@pytest.mark.slow
def test_lowered_source_does_not_depend_on_the_hash_seed():
    """Two processes compile the same text, so that the same inputs give the same bits."""
    digests = {
        subprocess.run(
            [sys.executable, "-c", SOURCE_DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1


def test_states_are_laid_out_as_often_as_they_are_gathered_and_reduced():
    """With FSDP that reshards each micro-batch lays out weights twice and gradients once; else a step does, once."""
    model, plain = MODELS["windows"], RECIPES["megatron"].replaced(overlap_parameter_gather=False)
    recipe = plain.replaced(overlap_gradient_reduce=False, parameter_copy_bytes=8, gradient_copy_bytes=14)
    flags = {"shard_optimizer": 1, "shard_gradients": 1, "shard_weights": 1, "reshard": 1}
    once = dict.fromkeys(flags, 0)
    names = {"parameter": "layer_parameter_copy_s", "gradient": "layer_gradient_copy_s"}
    for known, each_micro_batch in ((flags, {"parameter": 2, "gradient": 1}), (once, {"parameter": 0, "gradient": 0})):
        costs = stage_costs(model, recipe, 0)
        for of, part in names.items():
            symbol = symbols.PARTS[part]
            values = {symbols.__dict__[name]: value for name, value in known.items()} | {symbols.layers: 3}

            def times(name, symbol=symbol, values=values, costs=costs):
                return costs[name].xreplace(values).diff(symbol)

            assert (times("forward_s") + times("input_grad_s")).expand() == 3 * each_micro_batch[of]
            assert times("first_s") + times("last_s") == (0 if each_micro_batch[of] else 3)

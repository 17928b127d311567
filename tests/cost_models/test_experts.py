"""Experts: what travels to them, who shards their states, what a layer keeps, what recomputing frees."""

import numpy as np
import pytest

from cost_models import memory, symbols
from cost_models.blocks import ZERO
from cost_models.columns import evaluate
from cost_models.layers import layer
from cost_models.specs.catalog import load_model
from cost_models.specs.layer_pattern import LayerKind
from cost_models.specs.recipe import FrameworkRecipe
from tests.cost_models.setting import (
    KINDS,
    RECIPES,
    counting_functions,
    lower_whole,
    lowered,
    model_columns,
    random_columns,
)

ROWS = 200
EXPERTS = ("latent", "routed")
RECIPE = FrameworkRecipe(name="modern")


def routed_bytes(columns):
    """Bytes of all copies that a rank sends to experts: tokens of its sequence shard, K copies of 2 h bytes."""
    shard = np.where(columns["sequence_parallel"], columns["tp"], 1) * columns["cp"]
    tokens = columns["micro_batch_size"] * columns["seq_len"] / shard
    return 2 * tokens * columns["top_k"] * columns["hidden"]


@pytest.mark.parametrize("name", EXPERTS)
def test_volumes_of_expert_parallelism(name):
    """Dispatch and combine are t K h 2 (e-1)/e bytes, two each way, times the imbalance; full recompute adds two."""
    columns = random_columns(KINDS[name], ROWS, seed=1)
    columns |= {"etp": np.ones(ROWS), "recompute_full": np.ones(ROWS)}
    sent = routed_bytes(columns) * columns["expert_imbalance"] * (columns["ep"] - 1) / columns["ep"]
    block = layer(KINDS[name], RECIPES["megatron"], LayerKind(0, moe=True))
    travels = [operator for operator in block if operator.communication == "expert_parallel"]
    forward = sum((operator.forward_s for operator in travels), ZERO)
    passes = lower_whole({"forward": forward, "operators": len(travels)}, counting_functions())
    values = evaluate(passes, columns, ROWS)
    np.testing.assert_allclose(values["forward"], 2 * sent)
    assert values["operators"][0] == 2
    costs = evaluate(lowered(name, "megatron", counting=True)[0], columns, ROWS)
    np.testing.assert_allclose(costs["layer_expert_parallel_s"], 4 * sent)
    np.testing.assert_allclose(costs["head_expert_parallel_s"], 4 * sent * KINDS[name].mtp_layers)
    assert not np.any(costs["embedding_expert_parallel_s"])


def test_experts_split_by_tensor_parallelism_gather_their_copies():
    """With expert tensor parallelism a group also gathers the copies of its members, and scatters the sums."""
    columns = random_columns(KINDS["routed"], ROWS, seed=2) | {"ep": np.ones(ROWS)}
    etp, sent = columns["etp"], routed_bytes(columns) * columns["expert_imbalance"]
    costs = evaluate(lowered("routed", "megatron", counting=True)[0], columns, ROWS)
    np.testing.assert_allclose(costs["layer_expert_parallel_s"], 4 * (etp - 1) * sent)


@pytest.mark.parametrize("name", EXPERTS)
def test_recomputing_experts_sends_their_copies_again(name):
    """Recomputing `moe` runs dispatch and combine again; `shared_experts` runs their tensor-parallel collectives."""
    flags = {str(flag): np.zeros(ROWS) for flag in symbols.RECOMPUTE_FLAGS.values()}
    columns = random_columns(KINDS[name], ROWS, seed=3) | flags | {"etp": np.ones(ROWS)}
    sent = routed_bytes(columns) * columns["expert_imbalance"] * (columns["ep"] - 1) / columns["ep"]
    function = lowered(name, "megatron", counting=True)[0]
    again = evaluate(function, columns | {"recompute_moe": np.ones(ROWS)}, ROWS)["layer_recompute_s"]
    np.testing.assert_allclose(again, 2 * sent)
    tokens = columns["micro_batch_size"] * columns["seq_len"] / columns["cp"]
    reduced = 4 * (columns["tp"] - 1) / columns["tp"] * tokens * columns["hidden"]
    again = evaluate(function, columns | {"recompute_shared_experts": np.ones(ROWS)}, ROWS)["layer_recompute_s"]
    np.testing.assert_allclose(again, reduced if name == "latent" else 0 * reduced)


@pytest.mark.parametrize("name", EXPERTS)
def test_states_of_experts_have_a_shard_group_of_their_own(name):
    """18, 6 + 12/r, 2 + 16/r, 18/r bytes a parameter, r of the dense group or of the expert's replicas."""
    moe, model = KINDS[name].moe, KINDS[name]
    columns = random_columns(model, ROWS, seed=4)
    micro_batch, exchange, whole = lowered(name, "megatron")
    zero = np.arange(ROWS) % 4
    columns |= {"shard_optimizer": zero >= 1, "shard_gradients": zero >= 2, "shard_weights": zero >= 3}
    columns |= {"has_embedding": np.zeros(ROWS), "has_head": np.zeros(ROWS)}
    parts = evaluate(micro_batch, columns, ROWS) | evaluate(exchange, columns, ROWS)
    values = evaluate(whole, {**columns, **parts}, ROWS)
    experts = moe.experts / columns["ep"] * 3 * model.hidden * moe.expert_ffn / columns["etp"]
    np.testing.assert_allclose(parts["layer_expert_parameters"], experts, rtol=1e-15)

    def per_parameter(r):
        return np.choose(zero, (18 + 0 * r, 6 + 12 / r, 2 + 16 / r, 18 / r))

    wanted = parts["layer_parameters"] * per_parameter(columns["dp_shard"])
    wanted += experts * per_parameter(columns["expert_shard"])
    states = sum(values[cause] for cause in ("weights", "gradients", "master_weights", "moments"))
    np.testing.assert_allclose(states, columns["layers"] * wanted, rtol=1e-14)


def kept(model, modules=(), **degrees):
    """Bytes that a layer with experts keeps of one token of a sequence shard, under a recompute set."""
    plain = dict.fromkeys(("tp", "cp", "ep", "etp", "expert_imbalance", "micro_batch_size", "sequence_parallel"), 1)
    columns = {**model_columns(model), **plain, "seq_len": 4096, **degrees}
    columns |= {f"recompute_{name}": float(name in modules) for name in symbols.RECOMPUTE_FLAGS}
    block = layer(model, RECIPE, LayerKind(0, moe=True))
    value = lower_whole({"bytes": memory.recomputed_saved_bytes(block)}, {})(columns)["bytes"]
    return value * columns["tp"] * columns["cp"] / 4096


@pytest.mark.parametrize("degrees", [{}, {"tp": 4}, {"tp": 2, "cp": 2, "ep": 8}])
def test_activations_of_experts(degrees):
    """h (12 + 4 k/a) + 6 K f + 4 E + 2 K h a token, router and one dispatched copy included; `moe` frees all of it."""
    model = load_model("mixtral-8x7b")
    h, grouped, moe = model.hidden, model.kv_heads / model.heads, model.moe
    experts = 6 * moe.top_k * moe.expert_ffn + 4 * moe.experts + 2 * moe.top_k * h
    everything = h * (12 + 4 * grouped) + experts
    per_token = {
        (): everything,
        ("moe",): everything - experts,
        ("activation",): everything - 2 * moe.top_k * moe.expert_ffn,
        ("moe", "activation"): everything - experts,
        ("mlp",): everything,
        ("shared_experts",): everything,
        ("full",): 2 * h,
    }
    for modules, wanted in per_token.items():
        assert kept(model, modules, **degrees) == pytest.approx(wanted, rel=1e-14), modules


def test_more_copies_of_a_full_rank_are_kept():
    """The fullest expert rank keeps its copies, the imbalance times the mean; expert TP shares widths, not copies."""
    model = load_model("mixtral-8x7b")
    moe = model.moe
    copies = moe.top_k * (6 * moe.expert_ffn + 2 * model.hidden)
    assert kept(model, expert_imbalance=1.5) - kept(model) == pytest.approx(copies / 2)
    assert kept(model, etp=2) - kept(model) == pytest.approx(2 * moe.top_k * model.hidden)


def test_activations_of_deepseek_v3():
    """Latents and their norms, expanded heads, shared and routed experts, to the byte; each set frees its own."""
    model = load_model("deepseek-v3")
    h, heads, latents = 7168, 128, 1536 + 512 + 64
    expanded = 2 * heads * (192 + 192 + 128)
    shared, routed = 6 * 2048, 8 * (6 * 2048 + 2 * h) + 4 * 256
    everything = 2 * h * 4 + 2 * (latents + 1536 + 512) + expanded + 2 * heads * 128 + shared + routed
    per_token = {
        (): everything,
        ("mla_up_proj",): everything - expanded,
        ("shared_experts",): everything - shared,
        ("moe",): everything - routed,
        ("moe", "shared_experts", "mla_up_proj"): everything - routed - shared - expanded,
        ("activation",): everything - 2 * 2048 * 9,
        ("norm",): everything - 4 * h - 2 * (1536 + 512),
        ("full",): 2 * h,
    }
    for modules, wanted in per_token.items():
        assert kept(model, modules) == pytest.approx(wanted, rel=1e-14), modules
    # Latents are whole on every tensor-parallel rank, heads and widths are split, the rest follows the sequence.
    assert kept(model, tp=8) - kept(model) == pytest.approx(7 * 2 * (latents + 1536 + 512))


def test_a_gated_shared_expert_keeps_its_output():
    """The gate of the shared experts needs their output, 2 h a token; recomputing `shared_experts` frees it."""
    model = load_model("deepseek-v3")
    gated = model.replaced(moe=model.moe.replaced(shared_expert_gate=True))
    assert kept(gated) - kept(model) == pytest.approx(2 * model.hidden)
    assert kept(gated, ("shared_experts",)) == pytest.approx(kept(model, ("shared_experts",)))


@pytest.mark.parametrize("model_name", KINDS)
def test_memory_grows_and_falls(model_name):
    """More held or in flight never takes less memory, more sharding, expert ranks or recomputed layers never more."""
    columns = random_columns(KINDS[model_name], ROWS, seed=5)
    columns["recompute_layers"] = np.maximum(columns["recompute_layers"], 1)
    columns["live_recompute_layers"] = np.minimum(columns["live_recompute_layers"], columns["live_layers"] - 1)
    micro_batch, exchange, whole = lowered(model_name, "megatron")

    def device_bytes(**changed):
        row = {**columns, **changed}
        parts = evaluate(micro_batch, row, ROWS) | evaluate(exchange, row, ROWS)
        return evaluate(whole, {**row, **parts}, ROWS)["device_bytes"]

    before = device_bytes()
    for name in ("layers", "live_layers", "live_embedding", "live_head", "micro_batch_size", "expert_imbalance"):
        assert np.all(device_bytes(**{name: columns[name] + 1}) >= before * (1 - 1e-15)), name
    for name in ("dp_shard", "expert_shard", "ep"):
        assert np.all(device_bytes(**{name: 2 * columns[name]}) <= before * (1 + 1e-15)), name
    again = columns["live_recompute_layers"] + 1
    assert np.all(device_bytes(live_recompute_layers=again) <= before * (1 + 1e-15))

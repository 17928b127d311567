"""Activations against Korthikanti's table and the modern form, parameters, bytes handed to tensor-parallel groups."""

import numpy as np
import pytest

from cost_models import memory, symbols
from cost_models.columns import evaluate
from cost_models.layers import chain, layer
from cost_models.specs.catalog import load_model, names
from cost_models.specs.parameters import parameters
from cost_models.specs.recipe import FrameworkRecipe
from tests.cost_models.setting import DENSE, KINDS, MODELS, RECIPES, lower_whole, lowered, model_columns, random_columns

S, B, H, A, T = 2048, 3, 2048, 16, 4
GPT = MODELS["gpt"].replaced(hidden=H, ffn=4 * H, heads=A, kv_heads=A, head_dim=H // A)
KORTHIKANTI = FrameworkRecipe(name="2022", flash_attention=False, dropout=True)
SETS = ((), ("norm",), ("activation",), ("norm", "activation"), ("core_attention",), ("mlp",), ("norm", "mlp"))


def saved(model, recipe, *, tp, sequence_parallel, modules=(), seq_len=S, cp=1):
    """Bytes that a layer keeps of a micro-batch under a recompute set."""
    columns = {
        **model_columns(model),
        **{f"recompute_{name}": float(name in modules) for name in symbols.RECOMPUTE_FLAGS},
        **{"tp": tp, "cp": cp, "sequence_parallel": sequence_parallel, "seq_len": seq_len, "micro_batch_size": B},
    }
    outputs = {"saved": memory.recomputed_saved_bytes(layer(model, recipe, model.layer_kinds[0]))}
    return float(lower_whole(outputs, {})(columns)["saved"])


@pytest.mark.parametrize(
    ("tp", "sequence_parallel", "modules", "per_sbh"),
    [
        (1, 0, (), 34 + 5 * A * S / H),
        (T, 0, (), 10 + 24 / T + 5 * A * S / (H * T)),
        (T, 1, (), (34 + 5 * A * S / H) / T),
        (1, 0, ("core_attention",), 34),
        (T, 0, ("core_attention",), 10 + 24 / T),
        (T, 1, ("core_attention",), 34 / T),
        (1, 0, ("full",), 2),
        (T, 0, ("full",), 2),
        (T, 1, ("full",), 2 / T),
        (T, 1, ("full", "norm", "mlp"), 2 / T),
    ],
)
def test_activations_of_korthikanti(tp, sequence_parallel, modules, per_sbh):
    """Table 2 of Korthikanti et al. 2022, to the byte: MHA, GELU, f = 4h, dropout, attention scores stored."""
    value = saved(GPT, KORTHIKANTI, tp=tp, sequence_parallel=sequence_parallel, modules=modules)
    assert value == pytest.approx(S * B * H * per_sbh, rel=1e-15)


@pytest.mark.parametrize("name", ["llama3-8b", "llama2-13b", "llama3-70b", "llama3.1-405b"])
@pytest.mark.parametrize(("tp", "cp"), [(1, 1), (2, 1), (8, 4)])
def test_activations_of_modern_layers(name, tp, cp):
    """h (12 + 4 k/a) + 6 f a token with TP and SP, less what each recompute set frees; flash attention none."""
    model, recipe = load_model(name), FrameworkRecipe(name="modern")
    h, f, grouped = model.hidden, model.ffn, model.kv_heads / model.heads
    everything = h * (12 + 4 * grouped) + 6 * f
    per_token = {
        (): everything,
        ("norm",): everything - 4 * h,
        ("activation",): everything - 2 * f,
        ("norm", "activation"): everything - 4 * h - 2 * f,
        ("core_attention",): everything,
        ("mlp",): everything - 6 * f,
        ("norm", "mlp"): h * (8 + 4 * grouped),
        ("full",): 2 * h,
    }
    for modules, wanted in per_token.items():
        value = saved(model, recipe, tp=tp, cp=cp, sequence_parallel=1, modules=modules, seq_len=8192)
        assert value == pytest.approx(B * 8192 / (tp * cp) * wanted, rel=1e-15), modules


def test_activations_without_sequence_parallelism():
    """Norms and the residual stream (8 h a token) stay whole on every tensor-parallel rank, the rest is split."""
    model, recipe = load_model("llama3-70b"), FrameworkRecipe(name="modern")
    h, f, grouped = model.hidden, model.ffn, model.kv_heads / model.heads
    value = saved(model, recipe, tp=T, sequence_parallel=0)
    assert value == pytest.approx(B * S * (8 * h + (h * (4 + 4 * grouped) + 6 * f) / T), rel=1e-15)


def test_more_ranks_than_heads_keep_copies_of_keys():
    """With more tensor-parallel ranks than key-value heads each rank keeps one head, and its parameters."""
    model, recipe = load_model("llama3-8b"), FrameworkRecipe(name="modern")
    eight, sixteen = (saved(model, recipe, tp=tp, sequence_parallel=1) * tp for tp in (8, 16))
    one_head_bytes = 2 * 2 * B * S * model.head_dim
    assert sixteen - eight == pytest.approx((16 - 8) * one_head_bytes, rel=1e-12)


def test_norms_on_outputs_are_not_freed():
    """A layer keeps as much with norms on its outputs as on its inputs, but recomputing them frees nothing."""
    before = DENSE["llama"]
    after, both = (before.replaced(norm_placement=placement) for placement in ("after", "both"))
    sizes = {"tp": 2, "sequence_parallel": 1}
    whole = saved(before, RECIPES["megatron"], **sizes)
    stream = 2 * B * S * before.hidden / 2
    assert saved(after, RECIPES["megatron"], **sizes) == whole
    assert saved(after, RECIPES["megatron"], **sizes, modules=("norm",)) == whole
    assert saved(both, RECIPES["megatron"], **sizes) == whole + 2 * stream
    assert saved(both, RECIPES["megatron"], **sizes, modules=("norm",)) == whole


def test_a_parallel_block_has_one_residual():
    """Attention and MLP that read one norm keep the layer's input and that norm once; of two norms both outputs."""
    model = DENSE["llama"].replaced(parallel_block=True)
    sizes = {"tp": 2, "sequence_parallel": 1}
    stream = 2 * B * S * model.hidden / 2
    whole = saved(DENSE["llama"], RECIPES["megatron"], **sizes)
    assert saved(model, RECIPES["megatron"], **sizes) == whole - stream
    assert saved(model.replaced(shared_norm=True), RECIPES["megatron"], **sizes) == whole - 2 * stream


@pytest.mark.parametrize("recipe_name", RECIPES)
def test_recompute_never_keeps_more(recipe_name):
    """Each further module keeps at most as much, and full recompute least of all."""
    for model in DENSE.values():
        for tp, sequence_parallel in ((1, 0), (4, 0), (4, 1)):
            kept = {
                modules: saved(model, RECIPES[recipe_name], tp=tp, sequence_parallel=sequence_parallel, modules=modules)
                for modules in (*SETS, ("full",))
            }
            assert kept["norm", "mlp"] <= min(kept["norm",], kept["mlp",]) <= kept[()]
            assert kept["full",] <= min(kept.values())


# What no model of the catalog has: layer norms of queries, keys and latents.
LAYER_NORMS = (
    DENSE["gpt"].replaced(name="by head", qk_norm="head", attention_sinks=True, head_bias=True, embedding_norm=True),
    DENSE["gpt"].replaced(name="by projection", qk_norm="projection", kv_heads=4),
    KINDS["latent"].replaced(name="latent layer norms", norm="layernorm", attention_output_bias=True, mlp_bias=True),
    KINDS["routed"].replaced(name="parallel", parallel_block=True, shared_norm=True),
)


@pytest.mark.parametrize(
    "model", [*MODELS.values(), *LAYER_NORMS, *map(load_model, names("models"))], ids=lambda model: model.name
)
def test_operators_own_the_parameters_of_the_model(model):
    """Parameters of a chain at tp 1, its period as often as it repeats, are the model's, MTP layers included."""
    units = chain(model, FrameworkRecipe(name="any")).units()
    outputs = {unit: sum(memory.unit_parameters(operators)) for unit, operators in units.items()}
    outputs["shared"] = memory.shared_parameters(model)
    alone = {"tp": 1, "ep": 1, "etp": 1, "padded_vocab": model.vocab}
    counted = lower_whole(outputs, {})(model_columns(model) | alone)
    total = model.layer_pattern.repeats * counted["layer"] + counted["embedding"] + counted["head"]
    assert total - counted["shared"] == parameters(model, mtp=True)


@pytest.mark.parametrize("sequence_parallel", [0, 1])
@pytest.mark.parametrize("modules", [(), ("full",), ("mlp",), ("norm", "activation")])
def test_volumes_of_tensor_parallelism(sequence_parallel, modules):
    """Ring volumes of a layer: 4 X forward, 4 X backward, 2 X more re-gathered with SP; recompute runs them again."""
    rows = 200
    columns = random_columns(MODELS["llama"], rows, seed=1)
    columns |= {f"recompute_{name}": np.full(rows, float(name in modules)) for name in symbols.RECOMPUTE_FLAGS}
    columns |= {"sequence_parallel": np.full(rows, float(sequence_parallel)), "cp_ring": np.zeros(rows)}
    columns["cp_heads"] = np.ones(rows)
    values = evaluate(lowered("llama", "megatron", counting=True)[0], columns, rows)
    t, tokens = columns["tp"], columns["micro_batch_size"] * columns["seq_len"] / columns["cp"]
    ring = (t - 1) / t * 2 * tokens * columns["hidden"]
    keys_and_values = 4 * tokens * (columns["cp"] - 1) * np.maximum(columns["kv_heads"] / t, 1) * columns["head_dim"]
    np.testing.assert_allclose(values["layer_forward_s"], 4 * ring + keys_and_values)
    np.testing.assert_allclose(values["layer_input_grad_s"], (4 + 2 * sequence_parallel) * ring + 2 * keys_and_values)
    np.testing.assert_allclose(values["layer_weight_grad_s"], 0)
    np.testing.assert_allclose(values["layer_tensor_parallel_s"], (8 + 2 * sequence_parallel) * ring)
    again = {("full",): 4, ("mlp",): 2}.get(modules, 0)
    np.testing.assert_allclose(values["layer_recompute_s"], again * ring + ("full" in modules) * keys_and_values)
    scalars = 3 * 2 * (t - 1) / t * 4 * tokens
    np.testing.assert_allclose(values["embedding_tensor_parallel_s"], 2 * ring)
    np.testing.assert_allclose(values["head_tensor_parallel_s"], (2 + sequence_parallel) * ring + scalars)
    shard = np.where(sequence_parallel, t, 1)
    np.testing.assert_allclose(values["boundary_bytes"], 2 * tokens * columns["hidden"] / shard)

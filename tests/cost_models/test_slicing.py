"""What slices add to a micro-batch and to a stage, against values written by hand."""

import numpy as np
import pytest

from cost_models import slicing, stage
from cost_models.lower import Lowered, lower
from tests.cost_models.setting import (
    CONTEXT_BYTES,
    MODELS,
    RECIPES,
    Columns,
    counting_functions,
    functions,
    lowered,
    random_columns,
)

ROWS = 40
SLICES = 8


def sliced(model_name: str, recipe_name: str, *, counting: bool = False) -> tuple[Lowered, Lowered, Lowered]:
    """Micro-batch, pipeline exchange and stage, as schedules with slices read them."""
    model, recipe = MODELS[model_name], RECIPES[recipe_name]
    bound = counting_functions() if counting else functions(recipe)
    return (
        lower(stage.micro_batch_costs(model, recipe, sliced=True), bound),
        lower(slicing.pipeline_exchange_costs(model, recipe), bound),
        lower(stage.stage_costs(model, recipe, CONTEXT_BYTES, sliced=True), bound),
    )


def columns_of(model_name: str, slices: int, **changed: float) -> Columns:
    """Random columns of a model whose sequences are cut into so many slices."""
    columns = random_columns(MODELS[model_name], ROWS, seed=5) | {
        name: np.full(ROWS, float(value)) for name, value in changed.items()
    }
    added = {"slices": slices, "spread": 0.0, "kv_gradient_layers": 0.0, **changed}
    columns |= {name: np.full(ROWS, float(value)) for name, value in added.items()}
    for name in ("live_head", "waiting_head"):  # a rank without a head has none of its activations
        columns[name] = columns[name] * (columns["has_head"] > 0)
    return columns | {"slice_len": columns["seq_len"] / slices}


@pytest.mark.parametrize("recipe_name", RECIPES)
@pytest.mark.parametrize("model_name", MODELS)
def test_one_slice_is_the_micro_batch(model_name: str, recipe_name: str) -> None:
    """Expressions that know slices say of a single one what the others say of the micro-batch."""
    columns = columns_of(model_name, 1)
    plain, exchange, stages = lowered(model_name, recipe_name)
    dear, shared, with_slices = sliced(model_name, recipe_name)
    expected, found = plain(columns), dear(columns)
    for name, value in expected.items():
        assert np.allclose(found[name], value, rtol=1e-12), name
    columns |= {name: np.broadcast_to(value, ROWS) for name, value in (found | exchange(columns)).items()}
    columns |= {name: np.broadcast_to(value, ROWS) for name, value in shared(columns).items()}
    whole = with_slices(columns)
    for name, value in stages(columns).items():
        assert np.allclose(whole[name], value, rtol=1e-12), name
    assert not np.any(whole["pipeline_exchange_s"])


@pytest.mark.parametrize("model_name", ["llama", "gpt", "routed"])
def test_slices_send_what_the_micro_batch_does_but_for_earlier_keys(model_name: str) -> None:
    """TP and expert bytes stay; keys and values of slice j are gathered with those of the j slices before it."""
    whole, cut = (
        sliced(model_name, "megatron", counting=True)[0](columns_of(model_name, slices, cp_heads=1, cp_ring=0, cp=4))
        for slices in (1, SLICES)
    )
    for unit in ("layer", "embedding", "head"):
        for group in ("tensor_parallel", "expert_parallel"):
            assert np.allclose(cut[f"{unit}_{group}_s"], whole[f"{unit}_{group}_s"], rtol=1e-12)
    gathered = whole["layer_context_parallel_s"]
    assert np.all(gathered > 0)
    assert np.allclose(cut["layer_context_parallel_s"], gathered * (SLICES + 1) / 2, rtol=1e-12)


def test_a_slice_keeps_its_share_and_its_keys_and_values() -> None:
    """Bytes are those of one slice; full recompute keeps keys and values for the slices that follow."""
    none = {f"recompute_{module}": 0 for module in ("norm", "activation", "core_attention", "mlp")}
    micro_batch = sliced("llama", "megatron")[0]
    whole, cut = (micro_batch(columns_of("llama", slices, recompute_full=1, **none)) for slices in (1, SLICES))
    columns = columns_of("llama", SLICES)
    tokens = columns["micro_batch_size"] * columns["slice_len"] / columns["cp"]
    kv_heads = np.maximum(columns["kv_heads"] / columns["tp"], 1)
    cached = 2 * 2 * tokens * kv_heads * columns["head_dim"]
    for name in ("layer_saved_bytes", "head_saved_bytes", "logits_bytes", "boundary_bytes"):
        assert np.allclose(cut[name], whole[name] / SLICES, rtol=1e-12)
    assert np.allclose(cut["layer_kv_bytes"], cached, rtol=1e-12)
    kept = whole["layer_recomputed_saved_bytes"] / SLICES
    assert np.allclose(cut["layer_recomputed_saved_bytes"], kept + cached, rtol=1e-12)


def test_latent_keys_stay_expanded_for_later_slices() -> None:
    """Recomputing the up projections frees the queries of a slice, not its keys and values."""
    flags = {f"recompute_{module}": 0 for module in ("full", "norm", "moe", "shared_experts", "mlp", "activation")}
    micro_batch = sliced("latent", "megatron")[0]
    whole, cut = (micro_batch(columns_of("latent", slices, recompute_mla_up_proj=1, **flags)) for slices in (1, SLICES))
    kept = whole["layer_recomputed_saved_bytes"] / SLICES
    assert np.allclose(cut["layer_recomputed_saved_bytes"], kept + cut["layer_kv_bytes"], rtol=1e-12)


def test_attention_is_that_of_the_mean_slice_as_often_as_there_are_slices() -> None:
    """Queries of one slice against half the sequence on average; with the whole layer recomputed it runs once more."""
    columns = columns_of("llama", SLICES, recompute_full=1, cp_ring=0, cp_heads=1)
    found, bodies = sliced("llama", "megatron")[0](columns), functions(RECIPES["megatron"])
    queries = columns["slice_len"] / columns["cp"]
    sizes = (columns["micro_batch_size"], columns["heads"] / columns["tp"], queries, columns["seq_len"], 128.0)
    uneven = np.where(columns["cp"] >= 2, columns["document_mask_imbalance"], 1.0)
    forward, backward = (uneven * SLICES * bodies[f"attention_{name}_s"](*sizes) for name in ("forward", "backward"))
    assert np.allclose(found["layer_forward_attention_s"], forward, rtol=1e-12)
    assert np.allclose(found["layer_backward_attention_s"], backward, rtol=1e-12)
    assert np.allclose(found["layer_recompute_attention_s"], forward, rtol=1e-12)
    assert np.all(found["layer_forward_attention_s"] < found["layer_forward_s"])


@pytest.mark.parametrize("slices", [4, SLICES])
def test_what_pipeline_ranks_exchange_does_not_depend_on_the_slices(slices: int) -> None:
    """Queries and outputs of every layer; hidden states of both ends, which the head gathers over TP as well."""
    columns = columns_of("llama", slices, spread=1, pp=4, sequence_parallel=1)
    found = sliced("llama", "megatron", counting=True)[1](columns)
    t, stream = columns["tp"], 2 * columns["micro_batch_size"] * columns["seq_len"] / columns["cp"] * columns["hidden"]
    assert np.allclose(found["layer_pipeline_exchange_s"], 3 / 4 * 2 * stream / t, rtol=1e-12)
    assert np.allclose(found["embedding_pipeline_exchange_s"], 4 * 3 / 4 * stream / t, rtol=1e-12)
    head = 4 * (3 / 4 * stream / t + (t - 1) / t * stream)
    assert np.allclose(found["head_pipeline_exchange_s"], head, rtol=1e-12)
    none = sliced("llama", "megatron", counting=True)[1](columns_of("llama", slices, pp=4))
    assert not any(np.any(value) for value in none.values())


def test_a_stage_gathers_for_every_slice_and_adds_up_what_is_exchanged() -> None:
    """FSDP that reshards gathers parameters, and sharded gradients are reduced, once a pass."""
    columns = columns_of("llama", SLICES, spread=1, pp=4, shard_weights=1, shard_gradients=1, reshard=1, has_head=0.25)
    micro_batch, shared, stages = sliced("llama", "megatron", counting=True)
    dear = micro_batch(columns) | lowered("llama", "megatron", counting=True)[1](columns) | shared(columns)
    columns |= {name: np.broadcast_to(value, ROWS) for name, value in dear.items()}
    found = stages(columns)
    held = {"layer": columns["layers"], "embedding": columns["has_embedding"], "head": columns["has_head"]}
    gathers, reductions, exchanged = (
        sum(count * columns[f"{unit}_{name}_s"] for unit, count in held.items())
        for name in ("gather", "reduce", "pipeline_exchange")
    )
    assert np.allclose(found["exchange_s"], SLICES * (2 * gathers + reductions), rtol=1e-12)
    assert np.allclose(found["pipeline_exchange_s"], 2 * exchanged, rtol=1e-12)
    assert not np.any(found["forward_attention_s"] + found["backward_attention_s"])


def test_gradients_of_keys_and_values_are_buffers() -> None:
    """So many slices of layers, in the passes of a step, beside the hops' buffers."""
    few, many = (columns_of("llama", SLICES, pp=4, kv_gradient_layers=count) for count in (0, 12))
    micro_batch, shared, stages = sliced("llama", "megatron")
    dear = micro_batch(few) | lowered("llama", "megatron")[1](few) | shared(few)
    found = [stages(each | {n: np.broadcast_to(v, ROWS) for n, v in dear.items()}) for each in (few, many)]
    added = found[1]["pipeline_buffers"] - found[0]["pipeline_buffers"]
    assert np.allclose(added, 12 * dear["layer_kv_bytes"], rtol=1e-9)

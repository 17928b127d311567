"""Model states, transients, causes and phases of a stage's memory."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.columns import evaluate
from cost_models.memory import workspace_bytes
from tests.cost_models.setting import DENSE, MODELS, RECIPES, lower_whole, lowered, model_columns, random_columns

STATES = ("weights", "gradients", "master_weights", "moments")
FLAGS = ("shard_optimizer", "shard_gradients", "shard_weights", "reshard")


def stage_bytes(columns, rows, model_name="llama", recipe_name="megatron"):
    """Bytes by cause of stages, their parameters among them."""
    micro_batch, exchange, whole = lowered(model_name, recipe_name)
    parts = evaluate(micro_batch, columns, rows) | evaluate(exchange, columns, rows)
    return parts | evaluate(whole, {**columns, **parts}, rows)


def one_stage(model_name="llama", recipe_name="megatron", **changes):
    """Bytes by cause of one stage: eight layers without the ends of the model, nothing in flight.

    Workspaces of libraries, the same for every stage, are taken out.
    """
    columns = {name: column[:1] for name, column in random_columns(MODELS[model_name], 1, seed=0).items()}
    plain = {"layers": 8, "recompute_layers": 0, "has_embedding": 0, "has_head": 0, "communicators": 0, "tp": 2}
    ends = ("live_embedding", "live_head", "waiting_layers", "waiting_embedding", "waiting_head")
    plain |= dict.fromkeys(("live_layers", "live_recompute_layers", *ends), 0)
    plain |= {"dp_shard": 8, "vpp": 1, "pipelined": 1, "sequence_parallel": 1} | dict.fromkeys(FLAGS, 0)
    columns |= {name: np.array([float(value)]) for name, value in (plain | changes).items()}
    values = {name: float(column[0]) for name, column in stage_bytes(columns, 1, model_name, recipe_name).items()}
    return values | {"workspace": values["workspace"] - RECIPES[recipe_name].library_bytes}


def sharding(zero, reshard=0):
    return {"shard_optimizer": zero >= 1, "shard_gradients": zero >= 2, "shard_weights": zero >= 3, "reshard": reshard}


@settings(deadline=None)  # the first example builds the expressions
@given(
    r=st.integers(1, 512),
    tp=st.sampled_from([1, 2, 4, 8]),
    layers=st.integers(1, 32),
    ends=st.tuples(st.integers(0, 1), st.integers(0, 1)),
)
def test_states_equal_the_closed_forms(r, tp, layers, ends):
    """18, 6 + 12/r, 2 + 16/r, 18/r bytes a parameter for ZeRO 0 to 3, to the byte."""
    for zero, per_parameter in enumerate((18, 6 + 12 / r, 2 + 16 / r, 18 / r)):
        held = {"layers": layers, "has_embedding": ends[0], "has_head": ends[1], "padded_vocab": 128 * 1024}
        values = one_stage(dp_shard=r, tp=tp, **held, **sharding(zero))
        parameters = layers * values["layer_parameters"]
        parameters += ends[0] * values["embedding_parameters"] + ends[1] * values["head_parameters"]
        assert sum(values[name] for name in STATES) == pytest.approx(per_parameter * parameters, rel=1e-14, abs=0.5)


def test_transients_of_sharded_states():
    """ZeRO-2 holds a chunk's gradients whole, FSDP two gathered units and one's gradients, kept FSDP all weights."""
    layer = one_stage()["layer_parameters"]
    workspace = one_stage()["layer_workspace_bytes"]
    for vpp, widest in ((1, 8), (2, 4), (3, 3), (8, 1)):
        assert one_stage(vpp=vpp, **sharding(2))["workspace"] == pytest.approx(workspace + 4 * widest * layer)
    fsdp, kept = one_stage(**sharding(3, 1)), one_stage(**sharding(3, 0))
    assert fsdp["gathered_parameters"] == pytest.approx(2 * 2 * layer)
    assert fsdp["workspace"] == kept["workspace"] == pytest.approx(workspace + 4 * layer)
    assert kept["gathered_parameters"] == pytest.approx(2 * 8 * layer)
    first = one_stage(has_embedding=1, **sharding(3, 1))
    assert first["gathered_parameters"] == pytest.approx(2 * 2 * first["embedding_parameters"])
    assert one_stage(**sharding(1))["gathered_parameters"] == 0


def test_the_first_chunk_holds_the_embedding():
    """The whole gradient of ZeRO-2 on a stage with an end of the model counts that end undivided."""
    values = one_stage(has_embedding=1, vpp=4, **sharding(2))
    unsharded = 2 * values["layer_parameters"] + values["embedding_parameters"]
    assert values["workspace"] == pytest.approx(values["layer_workspace_bytes"] + 4 * unsharded)


def test_tied_embeddings_count_once_on_one_stage():
    """A tied matrix is one set of parameters where both ends share a stage, two where they do not."""
    both = one_stage("tied", has_embedding=1, has_head=1, pipelined=0)
    first, last = one_stage("tied", has_embedding=1), one_stage("tied", has_head=1)
    matrix = both["shared_parameters"]
    assert matrix > 0
    assert both["weights"] == pytest.approx(2 * (8 * both["layer_parameters"] + matrix + 512))
    assert first["weights"] + last["weights"] == pytest.approx(
        both["weights"] + 2 * (8 * both["layer_parameters"] + matrix)
    )


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_workspace_of_a_plain_layer(tp):
    """Without SP, GELU, f = 4h: 2u + 4u/t beside what is kept, u = 2sbh; what Mist's traced backward peak leaves."""
    model = MODELS["gpt"]
    sizes = {"tp": tp, "cp": 1, "cp_heads": 1, "cp_ring": 0, "sequence_parallel": 0}
    sizes |= {"seq_len": 2048, "micro_batch_size": 2}
    outputs = {"bytes": workspace_bytes(model, RECIPES["megatron"])}
    value = lower_whole(outputs, {})(model_columns(model) | sizes)["bytes"]
    u = 2 * 2048 * 2 * model.hidden
    assert value == pytest.approx(2 * u + 4 * u / tp)


def test_workspace_of_each_step_of_the_backward():
    """The gathered input and its gradient lead at high TP with SP, a gated pre-activation at TP 1, unfused scores."""
    llama, gpt = MODELS["llama"], MODELS["gpt"]
    tokens = 4096
    sizes = {"cp": 1, "cp_heads": 1, "cp_ring": 0, "sequence_parallel": 1, "seq_len": tokens, "micro_batch_size": 1}

    def workspace(model, recipe_name, tp):
        outputs = {"bytes": workspace_bytes(model, RECIPES[recipe_name])}
        return float(lower_whole(outputs, {})(model_columns(model) | sizes | {"tp": tp})["bytes"])

    h, f = llama.hidden, llama.ffn
    assert workspace(llama, "megatron", 8) == pytest.approx(2 * tokens * (h / 8 + 2 * h))
    assert workspace(llama, "megatron", 1) == pytest.approx(2 * tokens * (h + 2 * f))
    assert workspace(gpt, "megatron", 2) == pytest.approx(2 * tokens * (gpt.hidden * 3 / 2 + gpt.ffn / 2))
    scores = 2 * gpt.heads * tokens**2
    assert workspace(gpt, "before flash", 1) == pytest.approx(2 * tokens * gpt.hidden + scores)


def test_a_recomputed_layer_is_restored_whole():
    """With any recomputed layer the backward also holds what that layer did not keep."""
    modules = dict.fromkeys(("recompute_norm", "recompute_activation", "recompute_core_attention", "recompute_mlp"), 0)
    modules["recompute_full"] = 1
    without, with_one = one_stage(**modules), one_stage(recompute_layers=1, **modules)
    freed = with_one["layer_saved_bytes"] - with_one["layer_recomputed_saved_bytes"]
    assert with_one["workspace"] - without["workspace"] == pytest.approx(freed)
    assert one_stage(recompute_layers=8, **modules)["workspace"] == with_one["workspace"]


def test_logits_lead_at_the_end_of_the_model():
    """A large vocabulary's loss takes the place of the backward's workspace; waiting micro-batches keep 4 B a logit."""
    last = one_stage(has_head=1, live_head=1, padded_vocab=128256)
    assert last["workspace"] == 0
    assert last["logits_and_loss"] == last["logits_bytes"]
    waiting = one_stage(has_head=1, live_head=5, padded_vocab=128256)
    assert waiting["logits_and_loss"] == pytest.approx(last["logits_bytes"] * (1 + 4 * 4 / 6))
    small = one_stage(has_head=1, live_head=1, padded_vocab=128)
    assert small["logits_and_loss"] == 0
    assert small["workspace"] > 0


def test_a_graph_that_waits_for_weight_gradients_keeps_gradients_too():
    """Of queries, keys and values, of the attention's and the MLP's outputs, of gate and up projections; of norms."""
    shape = {"tp": 2, "cp": 1, "micro_batch_size": 1, "seq_len": 4096, "live_layers": 3, "sequence_parallel": 1}
    alike = [one_stage(recipe_name=name, waiting_layers=2, **shape) for name in ("megatron", "waiting")]
    none = one_stage(recipe_name="waiting", waiting_layers=0, **shape)
    assert alike[0]["saved_bytes"] == none["saved_bytes"]
    width = (4096 + 2 * 1024) / 2 + 4096 + 2 * 14336 / 2 + 4096 + 2 * 4096 / 2
    assert alike[1]["saved_bytes"] - none["saved_bytes"] == pytest.approx(2 * 2 * 4096 * width)


def test_the_optimizer_step_can_be_the_peak():
    """Temporaries of the step take the place of activations where they are larger, not their sum."""
    values = one_stage("tied", "waiting", live_layers=1, layers=16, seq_len=64, micro_batch_size=1)
    assert values["activations"] == values["logits_and_loss"] == values["pipeline_buffers"] == 0
    assert values["workspace"] == pytest.approx(40 * 16 * values["layer_parameters"])


def test_sharded_weights_are_stepped_in_groups():
    """The optimizer's temporaries are those of a group where weights are sharded, else of all that a rank owns."""
    owned = 8 * one_stage(recipe_name="waiting")["layer_parameters"] / 8
    assert owned > 10**6
    assert one_stage(recipe_name="waiting", **sharding(2))["optimizer_bytes"] == pytest.approx(40 * owned)
    assert one_stage(recipe_name="waiting", **sharding(3, 1))["optimizer_bytes"] == pytest.approx(40 * 10**6)


def test_the_norm_copies_the_largest_gradient_that_a_rank_owns():
    """Eight bytes an element: of a matrix, of the embedding, or of the shard where that is smaller."""
    states = {"seq_len": 64, "micro_batch_size": 1, "padded_vocab": 128256, "live_layers": 8}
    middle, first = (
        one_stage(recipe_name="copying", **states),
        one_stage(recipe_name="copying", **states, has_embedding=1),
    )
    assert middle["optimizer_bytes"] == pytest.approx(8 * middle["largest_matrix"])
    assert first["optimizer_bytes"] == pytest.approx(8 * first["embedding_parameters"])
    sharded = one_stage(recipe_name="copying", **states, **sharding(1) | {"dp_shard": 64})
    assert sharded["optimizer_bytes"] == pytest.approx(8 * 8 * sharded["layer_parameters"] / 64)


def test_what_stages_hand_on_is_kept_with_what_is_in_flight():
    """A tensor for each micro-batch in flight and two gradients; of an engine that frees it four in all."""
    freed, kept = (one_stage(recipe_name=name, live_layers=40) for name in ("megatron", "copying"))
    assert freed["buffer_bytes"] == pytest.approx(4 * freed["boundary_bytes"])
    assert kept["buffer_bytes"] == pytest.approx((2 + 5) * kept["boundary_bytes"])
    assert one_stage(recipe_name="copying", live_layers=40, pipelined=0)["buffer_bytes"] == 0


def test_buckets_hold_a_units_gradients_under_zero_2():
    """Gradients that are reduced while the backward runs exist unsharded for the largest unit, not for a chunk."""
    whole, bucketed = (one_stage(recipe_name=name, **sharding(2)) for name in ("megatron", "copying"))
    assert whole["transient_bytes"] - bucketed["transient_bytes"] == pytest.approx(7 * 4 * whole["layer_parameters"])


@pytest.mark.parametrize("recipe_name", RECIPES)
@pytest.mark.parametrize("model_name", DENSE)
@pytest.mark.parametrize(
    "name",
    ["layers", "live_layers", "live_embedding", "live_head", "micro_batch_size", "seq_len", "communicators"],
)
def test_memory_grows_with_what_is_held(model_name, recipe_name, name):
    """More layers, with as many micro-batches of them in flight, more in flight or larger ones never take less."""
    rows = 400
    columns = random_columns(MODELS[model_name], rows, seed=3)
    more = {**columns, name: columns[name] + (1024 if name == "seq_len" else 1)}
    if name == "layers":
        grown = more["layers"] / np.maximum(columns["layers"], 1)
        more |= {live: columns[live] * grown for live in ("live_layers", "live_recompute_layers")}
    before, after = (stage_bytes(each, rows, model_name, recipe_name)["device_bytes"] for each in (columns, more))
    assert np.all(after >= before)


@pytest.mark.parametrize("recipe_name", RECIPES)
@pytest.mark.parametrize("model_name", DENSE)
def test_memory_falls_with_sharding_and_recompute(model_name, recipe_name):
    """A larger shard group, and a further recomputed layer beyond the first, never take more memory."""
    rows = 400
    columns = random_columns(MODELS[model_name], rows, seed=4)
    columns["recompute_layers"] = np.maximum(columns["recompute_layers"], 1)
    columns["live_recompute_layers"] = np.minimum(columns["live_recompute_layers"], columns["live_layers"] - 1)
    device = stage_bytes(columns, rows, model_name, recipe_name)["device_bytes"]
    for name, value in (
        ("dp_shard", 2 * columns["dp_shard"]),
        ("live_recompute_layers", columns["live_recompute_layers"] + 1),
    ):
        assert np.all(stage_bytes({**columns, name: value}, rows, model_name, recipe_name)["device_bytes"] <= device)

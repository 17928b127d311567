"""Bytes on the wire of one rank, collective by collective, against volumes written by hand, at any degrees.

Ring volumes: of a tensor of X bytes over g ranks a gather or a scatter sends (g-1)/g X, an all-reduce twice that; an
all-to-all sends (g-1)/g of what a rank holds. X = 2 s b h / c is the residual stream of a micro-batch on a context
rank. Sources: Korthikanti et al. 2022 (tensor and sequence parallelism), Jacobs et al. 2023 (Ulysses), Llama 3 (ISCA
'25; gathered keys and values), Rajbhandari et al. 2020 (ZeRO).
"""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cost_models.blocks import ZERO
from cost_models.layers import chain, layer
from cost_models.specs.layer_pattern import LayerKind
from tests.cost_models.setting import MODELS, RECIPES, counting_functions, lower_whole, lowered, model_columns

RECIPE = RECIPES["megatron"]
GRADIENT, WEIGHT = 4, 2  # bytes of a parameter on the wire
degrees = st.integers(1, 24)
flags = st.integers(0, 1)


@st.composite
def rows(draw, model_name):
    """One row of columns: any degrees, whether they divide anything or not; the stage holds eight layers."""
    model, inner = MODELS[model_name], draw(degrees)
    names = ("tp", "ep", "etp", "pp", "dp_shard", "dp_replicate", "expert_shard")
    row = {name: draw(degrees) for name in names} | model_columns(model)
    row |= {"cp": inner * draw(degrees), "cp_heads": inner, "micro_batch_size": draw(degrees), "vpp": 1, "layers": 8}
    row |= {name: draw(flags) for name in ("sequence_parallel", "cp_ring", "has_embedding", "has_head")}
    row |= {"seq_len": 128 * draw(degrees), "expert_imbalance": 1 + draw(degrees) / 24, "padded_vocab": 128_256}
    strides = dict.fromkeys(("dp_stride", "replicate_stride", "pp_stride", "expert_stride"), 8)
    row |= strides | {"world": 4096, "recompute_layers": 0, "recompute_ends": 0}
    row |= dict.fromkeys(("pipelined", "ends_apart"), int(row["pp"] > 1))
    row |= {f"recompute_{name}": 0 for name in RECOMPUTE} | {"document_mask_imbalance": 1.0}
    return {name: float(value) for name, value in row.items()}


RECOMPUTE = ("norm", "activation", "core_attention", "mla_up_proj", "mlp", "moe", "shared_experts", "full")


def part(size, ranks):
    """Bytes of a gather or a scatter."""
    return size * (ranks - 1) / ranks


def stream(row):
    """X, bytes of the residual stream of a micro-batch."""
    return 2 * row["seq_len"] * row["micro_batch_size"] * row["hidden"] / row["cp"]


@cache
def passes(model_name, group, unit, moe=False):
    """The collectives of a group in one layer, or in the own operators of an end: bytes of forward and backward."""
    model = MODELS[model_name]
    block = layer(model, RECIPE, LayerKind(0, moe)) if unit == "layer" else getattr(chain(model, RECIPE), unit).own
    collectives = [operator for operator in block if operator.communication == group]
    forward = sum((operator.forward_s for operator in collectives), ZERO)
    backward = sum((operator.input_grad_s for operator in collectives), ZERO)
    return lower_whole({"forward": forward, "backward": backward}, counting_functions())


def sent(model_name, group, row, unit="layer", moe=False):
    """Bytes of forward and backward."""
    values = passes(model_name, group, unit, moe)(row)
    return float(values["forward"]), float(values["backward"])


def close(*wanted):
    """The same bytes, to rounding."""
    return pytest.approx(wanted, rel=1e-12, abs=1e-6)


@given(rows("llama"))
def test_tensor_parallelism(row):
    """A layer: two all-reduces each way, or two gathers and two scatters; with SP two gathers more in the backward.

    Both forms send the same, 8 (t-1)/t X, but for the inputs that SP gathers again for the weight gradients.
    """
    x = part(stream(row), row["tp"])
    assert sent("llama", "tensor_parallel", row) == close(4 * x, 4 * x + 2 * x * row["sequence_parallel"])


@given(rows("latent"))
def test_tensor_parallelism_of_experts(row):
    """Shared experts are split like an MLP; routed experts are not, so that without them attention's half is left."""
    shared = part(stream(row), row["tp"])
    more = 2 * row["sequence_parallel"]
    assert sent("latent", "tensor_parallel", row, moe=True) == close(4 * shared, (4 + more) * shared)
    attention = 2 * shared, (2 + more / 2) * shared
    assert sent("routed", "tensor_parallel", row, moe=True) == close(*attention)


@given(rows("llama"))
def test_the_embedding(row):
    """Rows of a split table are summed: an all-reduce forward, or with SP a scatter and in the backward a gather."""
    x, sequence = part(stream(row), row["tp"]), row["sequence_parallel"]
    assert sent("llama", "tensor_parallel", row, "embedding") == close((2 - sequence) * x, sequence * x)


@given(rows("llama"))
def test_the_head_and_its_loss(row):
    """The head enters like a layer; a split vocabulary's loss reduces three fp32 numbers a token, forward alone."""
    x, sequence = part(stream(row), row["tp"]), row["sequence_parallel"]
    scalars = 3 * 2 * part(4 * row["seq_len"] * row["micro_batch_size"] / row["cp"], row["tp"])
    assert sent("llama", "tensor_parallel", row, "head") == close(sequence * x + scalars, 2 * x)


@given(rows("llama"))
def test_full_recompute_runs_the_collectives_of_the_forward_again(row):
    """Two all-reduces, or two gathers and two scatters, and what context-parallel ranks exchange."""
    again = lowered("llama", "megatron", counting=True)[0](row | {"recompute_full": 1.0})["layer_recompute_s"]
    forward = sum(sent("llama", group, row)[0] for group in ("tensor_parallel", "context_parallel"))
    assert float(again) == pytest.approx(forward, rel=1e-12, abs=1e-6)


@given(rows("llama"))
def test_context_parallelism(row):
    """Gathered, ring, Ulysses and hierarchical forms at once: heads switch in groups of u, pairs pass c/u groups.

    Y is all keys and values of a sequence on one tensor-parallel rank, of which Ulysses leaves 1/u; each rank holds at
    least one head. Backward gathers them again and scatters their gradients; a ring passes those in fp32.
    """
    inner, groups = row["cp_heads"], row["cp"] / row["cp_heads"]
    local = 2 * row["seq_len"] * row["micro_batch_size"] * row["head_dim"]
    queries, keys = local * row["heads"] / row["tp"], local * max(row["kv_heads"] / row["tp"], 1)
    switched = part((2 * queries + 2 * keys) / row["cp"], inner)
    passed = part(2 * keys / inner, groups)
    backward = 3 if row["cp_ring"] else 2
    assert sent("llama", "context_parallel", row) == close(switched + passed, switched + backward * passed)


@given(rows("latent"))
def test_context_parallelism_of_latents(row):
    """Heads are exchanged expanded: keys of 192 elements and values of 128, as many as there are queries."""
    inner, groups = row["cp_heads"], row["cp"] / row["cp_heads"]
    heads = 2 * row["seq_len"] * row["micro_batch_size"] * row["heads"] / row["tp"]
    switched = part(heads * 2 * (192 + 128) / row["cp"], inner)
    passed = part(heads * (192 + 128) / inner, groups)
    backward = 3 if row["cp_ring"] else 2
    assert sent("latent", "context_parallel", row) == close(switched + passed, switched + backward * passed)


@given(rows("routed"))
def test_expert_parallelism(row):
    """K copies of each token go out and come back, each way: 4 t K h 2 (e-1)/e bytes, times the imbalance.

    Ranks that share an expert gather the copies of all of them, and scatter the sums.
    """
    tokens = row["seq_len"] * row["micro_batch_size"] / row["cp"] / (row["tp"] if row["sequence_parallel"] else 1)
    copies = tokens * 2 * row["hidden"] * row["top_k"] * row["expert_imbalance"]
    once = 2 * part(copies, row["ep"]) + 2 * part(copies * row["etp"], row["etp"])
    assert sent("routed", "expert_parallel", row, moe=True) == close(once, once)
    assert sent("routed", "expert_parallel", row, moe=False) == close(0, 0)


@given(rows("llama"))
def test_pipeline_boundaries(row):
    """A hop carries 2 s b h / c bytes, split over the tensor-parallel ranks with SP."""
    boundary = lowered("llama", "megatron")[0](row)["boundary_bytes"]
    split = row["tp"] if row["sequence_parallel"] else 1
    assert float(boundary) == pytest.approx(stream(row) / split, rel=1e-12)


@given(rows("tied"))
def test_tied_embeddings(row):
    """The two ends of a pipeline add their gradients of the shared matrix, g V h / t bytes; one stage has no second."""
    exchanged = lowered("tied", "megatron", counting=True)[1](row)
    matrix = GRADIENT * row["padded_vocab"] * row["hidden"] / row["tp"]
    assert float(exchanged["tied_reduce_s"]) == pytest.approx(matrix if row["pp"] > 1 else 0.0, rel=1e-12)


@given(rows("llama"))
def test_the_gradient_norm(row):
    """One fp32 number over all ranks."""
    exchanged = lowered("llama", "megatron", counting=True)[1](row)
    assert float(exchanged["gradient_norm_reduce_s"]) == pytest.approx(2 * part(4, row["world"]))


def exchanged_bytes(model_name, recipe_name, row, micro_batches):
    """Bytes of one step for states, gradient norm and tied ends left out; dense and expert parameters of the rank."""
    micro_batch, exchange, whole = lowered(model_name, recipe_name, counting=True)
    parts = micro_batch(row) | exchange(row) | {"gradient_norm_reduce_s": 0.0, "tied_reduce_s": 0.0}
    values = whole({**row, **dict.fromkeys(LIVE, 1.0), **parts})
    step = micro_batches * values["exchange_s"] + values["first_s"] + values["last_s"] + values["global_s"]
    held = {"layer": row["layers"], "embedding": row["has_embedding"], "head": row["has_head"]}
    counts = (sum(n * parts[f"{unit}_{kind}"] for unit, n in held.items()) for kind in KINDS)
    return float(step), *map(float, counts)


KINDS = ("parameters", "expert_parameters")
ENDS = ("live_embedding", "live_head", "waiting_layers", "waiting_embedding", "waiting_head")
LIVE = ("live_layers", "live_recompute_layers", *ENDS, "communicators")
MODES = [(0, 0), (1, 0), (2, 0), (3, 0), (3, 1)]


@pytest.mark.parametrize("recipe_name", ["megatron", "waiting"])
@pytest.mark.parametrize("model_name", ["llama", "routed", "latent"])
@pytest.mark.parametrize(("zero", "reshard"), MODES)
@given(data=st.data(), micro_batches=st.integers(1, 32))
@settings(max_examples=20)
def test_state_exchange(recipe_name, model_name, zero, reshard, data, micro_batches):
    """DDP 2g, ZeRO-1 g + 2 a step, ZeRO-2 m g + 2, FSDP kept the same, resharded m (2 * 2 + g), of each parameter.

    Gradients are scattered in the shard group and their shards reduced over replicas (HSDP); those of experts over the
    replicas of each expert alone. Without sharding they are reduced over all data-parallel ranks.
    """
    row = data.draw(rows(model_name))
    row |= {"shard_optimizer": float(zero >= 1), "shard_gradients": float(zero >= 2), "shard_weights": float(zero >= 3)}
    step, dense, experts = exchanged_bytes(model_name, recipe_name, row | {"reshard": float(reshard)}, micro_batches)
    shard, replicate, own = row["dp_shard"], row["dp_replicate"], row["expert_shard"]
    reduced = micro_batches if zero >= 2 else 1
    gathered = 2 * micro_batches if reshard else 1
    wanted = 2 * part(GRADIENT * dense, shard * replicate) + 2 * part(GRADIENT * experts, own)
    if zero:
        wanted = reduced * (part(GRADIENT * dense, shard) + 2 * part(GRADIENT * dense / shard, replicate))
        wanted += reduced * part(GRADIENT * experts, own)
        wanted += gathered * (part(WEIGHT * dense, shard) + part(WEIGHT * experts, own))
    assert step == pytest.approx(wanted, rel=1e-11, abs=1e-3)

"""Bytes that context-parallel ranks exchange, what a ring hides, and how the attention is shared out."""

import numpy as np
import pytest

from cost_models import memory
from cost_models.blocks import ZERO
from cost_models.columns import evaluate
from cost_models.layers import layer
from tests.cost_models.setting import (
    DENSE,
    MODELS,
    RECIPES,
    counting_functions,
    functions,
    lower_whole,
    lowered,
    random_columns,
)

ROWS = 200
MODEL = DENSE["llama"]


def layouts(seed, model=MODEL, **fixed):
    """Random layouts with up to 16 context-parallel ranks, head switches that divide them, no recompute."""
    rng = np.random.default_rng(seed)
    columns = random_columns(model, ROWS, seed)
    columns["cp"] = 2.0 ** rng.integers(0, 5, ROWS)
    columns["cp_heads"] = np.minimum(columns["cp"], 2.0 ** rng.integers(0, 5, ROWS))
    return columns | {name: np.broadcast_to(np.float64(value), ROWS) for name, value in fixed.items()}


def exchanged(columns, model=MODEL):
    """Bytes of the context-parallel collectives of one layer: forward, backward."""
    operators = [o for o in layer(model, RECIPES["megatron"], model.layer_kinds[0]) if o.communication]
    operators = [operator for operator in operators if operator.communication == "context_parallel"]
    passes = {
        "forward": sum((operator.forward_s for operator in operators), ZERO),
        "backward": sum((operator.input_grad_s for operator in operators), ZERO),
    }
    values = evaluate(lower_whole(passes, counting_functions()), columns, ROWS)
    return values["forward"], values["backward"]


def sizes(columns):
    """Y, bytes of keys and values of the whole sequence on one TP rank; k/a; the shard 2sbh/tc of queries."""
    whole = (
        2 * columns["micro_batch_size"] * columns["seq_len"] * columns["heads"] * columns["head_dim"] / columns["tp"]
    )
    grouped = columns["kv_heads"] / columns["heads"]
    return 2 * grouped * whole, grouped, whole / columns["cp"]


def test_volumes_of_the_gathered_form():
    """Keys and values are gathered, (c-1)/c Y; backward gathers them again and scatters their gradients."""
    columns = layouts(1, cp_heads=1, cp_ring=0)
    pair, _, _ = sizes(columns)
    part = (columns["cp"] - 1) / columns["cp"] * pair
    forward, backward = exchanged(columns)
    np.testing.assert_allclose(forward, part)
    np.testing.assert_allclose(backward, 2 * part)


def test_volumes_of_the_ring():
    """Keys and values go round, (c-1)/c Y; backward they go round again with their gradients, twice as wide in fp32."""
    columns = layouts(2, cp_heads=1, cp_ring=1)
    pair, _, _ = sizes(columns)
    part = (columns["cp"] - 1) / columns["cp"] * pair
    forward, backward = exchanged(columns)
    np.testing.assert_allclose(forward, part)
    np.testing.assert_allclose(backward, 3 * part)


@pytest.mark.parametrize("ring", [0, 1])
def test_volumes_of_switched_heads(ring):
    """Ulysses: four all-to-alls of queries, keys, values and outputs, (c-1)/c (2sbh/tc) (2 + 2k/a), each way."""
    columns = layouts(3, cp_ring=ring)
    columns["cp_heads"] = columns["cp"]
    _, grouped, shard = sizes(columns)
    wanted = (columns["cp"] - 1) / columns["cp"] * shard * (2 + 2 * grouped)
    for volume in exchanged(columns):
        np.testing.assert_allclose(volume, wanted)


def test_volumes_of_the_hierarchical_form():
    """Heads switch in groups of u ranks, keys and values of the heads that are left are gathered over c/u groups."""
    for ring, backward_times in ((0, 2), (1, 3)):
        columns = layouts(4, cp_ring=ring)
        pair, grouped, shard = sizes(columns)
        inner, groups = columns["cp_heads"], columns["cp"] / columns["cp_heads"]
        switched = (inner - 1) / inner * shard * (2 + 2 * grouped)
        gathered = (groups - 1) / groups * pair / inner
        forward, backward = exchanged(columns)
        np.testing.assert_allclose(forward, switched + gathered)
        np.testing.assert_allclose(backward, switched + backward_times * gathered)


def test_latent_attention_exchanges_every_head():
    """Keys of 192 and values of 128 elements of all heads travel, expanded."""
    model = MODELS["latent"]
    columns = layouts(5, model=model, cp_heads=1, cp_ring=0)
    rows = columns["micro_batch_size"] * columns["seq_len"] * columns["heads"] / columns["tp"]
    forward, _ = exchanged(columns, model)
    np.testing.assert_allclose(forward, (columns["cp"] - 1) / columns["cp"] * 2 * rows * (192 + 128))


def test_the_attention_is_shared_out_evenly():
    """Without a ring and masks the core attention of any form has an equal share of heads * queries * keys."""
    columns = layouts(6, cp_ring=0, document_mask_imbalance=1)
    bound = functions(RECIPES["megatron"]) | {
        "attention_forward_s": lambda batch, heads, queries, keys, width: batch * heads * queries * keys * width
    }
    core = next(o for o in layer(MODEL, RECIPES["megatron"], MODEL.layer_kinds[0]) if o.name == "core attention")
    whole = columns["micro_batch_size"] * columns["heads"] * columns["seq_len"] ** 2 * columns["head_dim"]
    values = evaluate(lower_whole({"pairs": core.forward_s}, bound), columns, ROWS)
    np.testing.assert_allclose(values["pairs"], whole / (columns["tp"] * columns["cp"]))


def test_uneven_masks_slow_the_attention():
    """The imbalance of document masks multiplies the attention of split sequences, and of no others."""
    even, uneven = (layouts(7, cp_ring=0, document_mask_imbalance=value) for value in (1.0, 1.5))
    times = [
        evaluate(lowered("llama", "megatron")[0], columns, ROWS)["layer_weight_grad_s"] for columns in (even, uneven)
    ]
    np.testing.assert_array_equal(*times)
    core = next(o for o in layer(MODEL, RECIPES["megatron"], MODEL.layer_kinds[0]) if o.name == "core attention")
    lone = lower_whole({"s": core.forward_s}, functions(RECIPES["megatron"]))
    ratio = evaluate(lone, uneven, ROWS)["s"] / evaluate(lone, even, ROWS)["s"]
    np.testing.assert_allclose(ratio, np.where(even["cp"] > 1, 1.5, 1.0))


def test_a_ring_hides_and_a_gather_waits():
    """Beside long attention a ring exposes less than a gather; a gather holds the whole sequence, a ring does not."""
    gather, ring = (layouts(8, cp_heads=1, cp_ring=value, seq_len=131072, tp=1) for value in (0, 1))
    waited, hidden = (evaluate(lowered("llama", "megatron")[0], columns, ROWS) for columns in (gather, ring))
    split = gather["cp"] > 1
    assert np.all(hidden["layer_context_parallel_s"][split] < 0.5 * waited["layer_context_parallel_s"][split])
    assert not np.any(waited["layer_context_parallel_s"][~split])
    pair, _, _ = sizes(gather)
    outputs = lower_whole({"bytes": memory.workspace_bytes(MODEL, RECIPES["megatron"])}, {})
    more, less = (evaluate(outputs, columns, ROWS)["bytes"] for columns in (gather, ring))
    stream = 2 * gather["micro_batch_size"] * gather["seq_len"] / gather["cp"] * gather["hidden"]
    np.testing.assert_allclose(more, np.where(split, np.maximum(less, stream + 2 * pair), less))

"""The attention half of a layer: projections (grouped-query or latent), core attention, and context parallelism.

Context parallelism splits the sequence over cp ranks. Inside groups of `cp_heads` ranks an all-to-all turns sequence
shards into head shards (Ulysses); across the `cp / cp_heads` groups keys and values travel, gathered before the
attention (Llama 3) or passed round a ring beside it (TransformerEngine). cp_heads = 1 is the pure all-gather or ring
form, cp_heads = cp pure Ulysses, anything between hierarchical.
"""

from typing import Any

from cost_models import symbols as sym
from cost_models.blocks import (
    ACTIVATION_BYTES,
    MASK_BYTES,
    ZERO,
    Block,
    Operator,
    Tensor,
    enter_tensor_parallel,
    leave_tensor_parallel,
    linear,
    norm,
    norm_vectors,
    residual,
    tokens,
)
from cost_models.operators import (
    ELEMENTWISE,
    all_gather_s,
    all_to_all_s,
    at_least,
    attention_backward_s,
    attention_forward_s,
    ceiling,
    elementwise_s,
    exposed_s,
    gemm_forward_s,
    maximum,
    minimum,
    reduce_scatter_s,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["attention_block", "attention_scores", "key_value_bytes", "kv_heads_per_rank", "pipeline_exchange_bytes"]

Expr = Any
FP32_BYTES = 4
# Bytes moved for one unfused attention score, forward and backward: softmax (in and out; gradient, output, gradient)
# and dropout (in, out, mask; gradient, mask, gradient).
SOFTMAX_TRAFFIC_BYTES = (4, 6)
DROPOUT_TRAFFIC_BYTES = (5, 5)
# Batched products whose heads are no multiple of this many elements (16 bytes) wide run on slower kernels: the factor
# explains the 38 % that steps of published runs with heads of 108 took longer than with 96 and 144 (fp16, A100).
ALIGNED_WIDTH, UNALIGNED_SLOWDOWN = 8, 12.0
# Bytes moved for one rotated element that goes through an fp32 copy: cast, multiplied, cast back; for queries and keys.
EAGER_ROPE_BYTES, EAGER_ROPE_KERNELS = 6 + 8 + 6, 6
kv_heads_per_rank = maximum(sym.kv_heads / sym.tp, 1)  # with more ranks than heads each rank holds a copy
ring_ranks = sym.cp / sym.cp_heads
# Of n slices the first needs its own keys, the last those of the whole sequence.
mean_keys = (sym.seq_len + sym.slice_len) / 2
attention_scores = sym.micro_batch_size * sym.heads / sym.tp * sym.slice_len / sym.cp * sym.seq_len


def attention_block(model: ModelSpec, recipe: FrameworkRecipe, window: int) -> Block:
    """Operators of the attention half of a layer; `window` tokens of sliding attention, 0 for full."""
    projections = _latent(model) if model.mla else _grouped_query(model, recipe)
    width = _value_width(model)
    return (
        norm("input norm", model, recipe, "layer input"),
        enter_tensor_parallel("attention", recipe, _input_width(model)),
        *projections,
        *_context_exchange(model),
        *_core_attention(model, recipe, window),
        linear("output projection", width, sym.hidden, bias=model.attention_output_bias, row_parallel=True),
        leave_tensor_parallel("attention", recipe, width),
        residual("attention residual", recipe),
    )


def key_value_bytes(model: ModelSpec, length: Expr = sym.seq_len) -> Expr:
    """Bytes of the keys and values of a micro-batch's sequences, or of `length` tokens of each, on a TP rank."""
    return ACTIVATION_BYTES * sym.micro_batch_size * length * _key_value_width(model)


def pipeline_exchange_bytes(model: ModelSpec) -> Expr:
    """Bytes of the queries of one slice and of what they attend to, on one rank: what pipeline ranks that share out the
    attention of early and late slices send at most, one direction (SlimPipe moves half of a slice or less)."""
    return ACTIVATION_BYTES * tokens * (sym.heads * _head_dims(model)[0] / sym.tp + _value_width(model))


def _head_dims(model: ModelSpec) -> tuple[Expr, Expr]:
    """Widths of a query (and key) head and of a value head."""
    return sym.head_dim, sym.value_head_dim if model.mla else sym.head_dim


def _value_width(model: ModelSpec) -> Expr:
    return sym.heads * _head_dims(model)[1] / sym.tp


def _key_value_width(model: ModelSpec) -> Expr:
    query_key, value = _head_dims(model)
    return (sym.heads / sym.tp if model.mla else kv_heads_per_rank) * (query_key + value)


def _input_width(model: ModelSpec) -> Expr:
    """Output width of the products that read the gathered input: their input gradient hides the second gather."""
    if model.mla:
        return (sym.query_rank if model.mla.query_rank else sym.heads * _head_dims(model)[0] / sym.tp) + sym.kv_rank
    return sym.heads * sym.head_dim / sym.tp + 2 * kv_heads_per_rank * sym.head_dim


def _grouped_query(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    query, pair = sym.heads * sym.head_dim / sym.tp, 2 * kv_heads_per_rank * sym.head_dim
    saved = (Tensor("query, key, value", ACTIVATION_BYTES * tokens * (query + pair)),)
    rotated = tokens * (query + pair / 2)
    traffic, kernels = (2 * ACTIVATION_BYTES, 2) if recipe.fused_rope else (EAGER_ROPE_BYTES, EAGER_ROPE_KERNELS)
    rope = Operator("rotary embedding", *_rotations(traffic * rotated), kernels=kernels)
    extra = (_query_key_norm(model, query, pair / 2),) if model.qk_norm != "none" else ()
    qkv = linear("qkv projection", sym.hidden, query + pair, bias=model.qkv_bias, saved=saved)
    return (qkv, *extra, *((rope,) if model.positions == "rope" else ()))


def _rotations(moved: Expr) -> tuple[Expr, Expr]:
    """Seconds of rotating, and of rotating gradients back, that move so many bytes."""
    return ELEMENTWISE["rotary_forward"](moved), ELEMENTWISE["rotary_backward"](moved)


def _query_key_norm(model: ModelSpec, query: Expr, key: Expr) -> Operator:
    """Norm of queries and keys, by head or over the whole projection; its input is kept beside its output."""
    size = ACTIVATION_BYTES * tokens * (query + key)
    return Operator(
        "query-key norm",
        ELEMENTWISE["norm_forward"](2 * size),
        ELEMENTWISE["norm_backward"](3 * size),
        parameters=norm_vectors(model) * (2 * sym.head_dim if model.qk_norm == "head" else query + key),
        saved=(Tensor("query and key before their norm", size, ("norm",)),),
        modules=("norm",),
        kernels=2,
    )


def _latent(model: ModelSpec) -> Block:
    """Multi-head latent attention (DeepSeek-V2): low-rank queries and keys-values, projected up per head.

    The down projections and the latents are not sharded over TP; the up projections are, by heads.
    """
    query_key, value = _head_dims(model)
    local_heads = sym.heads / sym.tp
    ranked = bool(model.mla and model.mla.query_rank)
    up = ("mla_up_proj",)
    expanded = ACTIVATION_BYTES * tokens * local_heads * (2 * query_key + value)
    query_input = sym.query_rank if ranked else sym.hidden
    down = (
        linear(
            "query down projection",
            sym.hidden,
            sym.query_rank,
            bias=False,
            saved=_latent_saved("query", sym.query_rank),
        ),
        _latent_norm("query", model, sym.query_rank),
    )
    return (
        *(down if ranked else ()),
        linear(
            "key-value down projection",
            sym.hidden,
            sym.kv_rank + sym.rope_head_dim,
            bias=False,
            saved=_latent_saved("key-value", sym.kv_rank + sym.rope_head_dim),
        ),
        _latent_norm("key-value", model, sym.kv_rank),
        linear("query up projection", query_input, local_heads * query_key, bias=False, modules=up),
        linear(
            "key-value up projection",
            sym.kv_rank,
            local_heads * (sym.head_dim - sym.rope_head_dim + value),
            bias=False,
            saved=(Tensor("query, key, value", expanded, up),),
            modules=up,
        ),
        Operator("rotary embedding", *_rotations(expanded), modules=up, kernels=3),
    )


def _latent_saved(name: str, width: Expr) -> tuple[Tensor, ...]:
    return (Tensor(f"{name} latent", ACTIVATION_BYTES * tokens * width),)


def _latent_norm(name: str, model: ModelSpec, width: Expr) -> Operator:
    size = ACTIVATION_BYTES * tokens * width
    saved = (Tensor(f"{name} latent after its norm", size, ("norm",)),)
    return Operator(
        f"{name} latent norm",
        ELEMENTWISE["norm_forward"](2 * size),
        ELEMENTWISE["norm_backward"](3 * size),
        parameters=norm_vectors(model) * width,
        saved=saved,
        modules=("norm",),
    )


def _context_exchange(model: ModelSpec) -> Block:
    """What context-parallel ranks exchange before and after the core attention."""
    heads_width = sym.heads * _head_dims(model)[0] / sym.tp + _key_value_width(model) + _value_width(model)
    switched = ACTIVATION_BYTES * tokens * heads_width  # query, key, value in; output back
    switch = all_to_all_s(switched, sym.cp_heads, sym.tp)
    gathered = key_value_bytes(model, mean_keys) / sym.cp_heads
    gather = all_gather_s(gathered, ring_ranks, sym.tp * sym.cp_heads)
    scatter = reduce_scatter_s(gathered, ring_ranks, sym.tp * sym.cp_heads)
    # Backward gathers keys and values again and reduces their gradients.
    return (
        Operator(
            "head switch",
            switch,
            switch,
            kernels=4 * at_least(sym.cp_heads, 2),
            communication="context_parallel",
            modules=("core_attention",),
        ),
        Operator(
            "key-value gather",
            (1 - sym.cp_ring) * gather,
            (1 - sym.cp_ring) * (gather + scatter),
            kernels=2 * at_least(ring_ranks, 2) * (1 - sym.cp_ring),
            communication="context_parallel",
            modules=("core_attention",),
        ),
    )


def _attention_sizes(model: ModelSpec, window: int) -> tuple[Expr, ...]:
    """Batch, heads, queries, keys and head width of a rank's core attention, as its operators take them.

    The operator counts queries * keys / 2 causal pairs; of several slices these are the pairs of the mean one. With
    head and tail chunks paired, each context-parallel rank does an equal share; a window of w tokens leaves
    s*w - w*w/2 pairs of a sequence, chunks of w half a square each.
    """
    query_key, value = _head_dims(model)
    keys = sym.seq_len
    if window and model.window_kind == "chunked":
        whole = -ceiling(-sym.seq_len / window)
        rest = sym.seq_len - whole * window
        keys = (whole * window * window + rest * rest) / sym.seq_len
    elif window:
        seen = minimum(window, sym.seq_len)
        keys = 2 * seen - seen * seen / sym.seq_len
    queries = sym.slice_len * sym.cp_heads / sym.cp
    return sym.micro_batch_size, sym.heads / (sym.tp * sym.cp_heads), queries, keys, (query_key + value) / 2


def _core_attention(model: ModelSpec, recipe: FrameworkRecipe, window: int) -> Block:
    # The attention's backward reads its output in bf16, the projection's weight gradient as an operand.
    kept = ACTIVATION_BYTES + sym.quantised * int(recipe.keeps_cast_operands)
    output = Tensor("attention output", kept * tokens * _value_width(model))
    if not recipe.flash_attention:
        core = _unfused_attention(model, recipe, output)
        return core, _ring(model, core)
    uneven = 1 + (sym.document_mask_imbalance - 1) * at_least(sym.cp, 2)
    # A ring attends to the keys of one rank at a time: as much work in shorter kernels.
    steps = 1 + sym.cp_ring * (ring_ranks - 1)
    batch, heads, queries, keys, width = _attention_sizes(model, window)
    forward, backward = (
        uneven * steps * seconds(batch, heads, queries, keys / steps, width)
        for seconds in (attention_forward_s, attention_backward_s)
    )
    core = Operator(
        "core attention",
        forward,
        backward,
        parameters=_sinks(model),
        saved=(output,),
        modules=("core_attention",),
        kernels=steps,
    )
    return core, _ring(model, core)


def _ring(model: ModelSpec, core: Operator) -> Operator:
    """What the core attention cannot hide of keys and values that go round a ring beside it."""
    passed = all_gather_s(key_value_bytes(model, mean_keys) / sym.cp_heads, ring_ranks, sym.tp * sym.cp_heads)
    return Operator(
        "key-value ring",
        exposed_s(core.forward_s, sym.cp_ring * passed),
        # Keys and values go round once more; their gradients, in fp32, go round with them.
        exposed_s(core.input_grad_s, sym.cp_ring * (1 + FP32_BYTES / ACTIVATION_BYTES) * passed),
        kernels=sym.cp_ring * (ring_ranks - 1),
        communication="context_parallel",
        modules=("core_attention",),
    )


def _sinks(model: ModelSpec) -> Expr:
    return sym.heads / sym.tp if model.attention_sinks else ZERO


def _unfused_attention(model: ModelSpec, recipe: FrameworkRecipe, output: Tensor) -> Operator:
    """Two full (not causal) products a head, and the score matrix goes through memory."""
    query_key, value = _head_dims(model)
    rows = attention_scores / sym.seq_len
    products = gemm_forward_s(rows, sym.seq_len, query_key) + gemm_forward_s(rows, value, sym.seq_len)
    padding = ALIGNED_WIDTH * ceiling(query_key / ALIGNED_WIDTH) - query_key
    products *= 1 + (UNALIGNED_SLOWDOWN - 1) * at_least(padding, 1)
    forward_bytes, backward_bytes = SOFTMAX_TRAFFIC_BYTES
    kept, kernels = ACTIVATION_BYTES, 3  # the softmax's output
    if recipe.dropout:
        forward_bytes += DROPOUT_TRAFFIC_BYTES[0]
        backward_bytes += DROPOUT_TRAFFIC_BYTES[1]
        kept, kernels = kept + ACTIVATION_BYTES + MASK_BYTES, kernels + 1
    return Operator(
        "core attention",
        products + elementwise_s(forward_bytes * attention_scores),
        2 * products + elementwise_s(backward_bytes * attention_scores),
        parameters=_sinks(model),
        saved=(output, Tensor("attention scores", kept * attention_scores, ("core_attention",))),
        modules=("core_attention",),
        kernels=kernels,
    )

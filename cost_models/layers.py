"""A layer, the embedding and the head as lists of operators, symbolic in the degrees.

Volumes and saved tensors follow Korthikanti et al. 2022 (table 2) and its form for gated, grouped-query models; see
docs/cost_model.md. Nothing here knows hardware: seconds are opaque operators until a profile is bound.
"""

from dataclasses import dataclass
from typing import Any

from sympy import Integer

from cost_models import symbols as sym
from cost_models.operators import (
    all_gather_s,
    all_reduce_s,
    at_least,
    attention_backward_s,
    attention_forward_s,
    elementwise_s,
    exposed_s,
    gemm_forward_s,
    gemm_input_grad_s,
    gemm_weight_grad_s,
    maximum,
    reduce_scatter_s,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["ACTIVATION_BYTES", "LOSS_TRAFFIC_BYTES", "Block", "Operator", "Tensor", "embedding", "head", "layer"]

Expr = Any

ACTIVATION_BYTES = 2  # bf16
MASK_BYTES = 1
# Bytes moved for one logit in the unfused loss: forward reads bf16, writes and reads fp32; backward reads fp32, writes
# bf16. Six kernels: the cast, the largest, the exponentials, their sum, the logarithm, the gradient.
LOSS_TRAFFIC_BYTES = (10, 6)
LOSS_KERNELS = 6
# Bytes moved for one unfused attention score, forward and backward: softmax (in and out; gradient, output, gradient)
# and dropout (in, out, mask; gradient, mask, gradient).
SOFTMAX_TRAFFIC_BYTES = (4, 6)
DROPOUT_TRAFFIC_BYTES = (5, 5)
ZERO = Integer(0)

tokens = sym.micro_batch_size * sym.seq_len / sym.cp
sequence_shard = 1 + sym.sequence_parallel * (sym.tp - 1)
kv_heads_per_rank = maximum(sym.kv_heads / sym.tp, 1)  # with more ranks than heads each rank holds a copy
query_width = sym.heads * sym.head_dim / sym.tp
key_value_width = 2 * kv_heads_per_rank * sym.head_dim
residual_bytes = ACTIVATION_BYTES * tokens * sym.hidden
attention_scores = sym.micro_batch_size * sym.heads / sym.tp * sym.seq_len / sym.cp * sym.seq_len


@dataclass(frozen=True)
class Tensor:
    """A tensor kept for the backward: bytes of one micro-batch on one rank; which recompute modules free it."""

    name: str
    bytes: Expr
    freed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operator:
    """One operator of a layer: seconds on one rank for one micro-batch, parameters it owns, tensors it keeps.

    `modules` are the entries of the recompute vocabulary that run it again; `kernels` counts the launches of the
    forward, and of the input gradient; `communication` marks collectives of the tensor-parallel group.
    """

    name: str
    forward_s: Expr
    input_grad_s: Expr
    weight_grad_s: Expr = ZERO
    parameters: Expr = ZERO
    saved: tuple[Tensor, ...] = ()
    modules: tuple[str, ...] = ()
    kernels: Expr = 1
    communication: bool = False


Block = tuple[Operator, ...]


def layer(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """Operators of one decoder layer, in the order of the forward."""
    return (*_attention_block(model, recipe), *_mlp_block(model, recipe))


def embedding(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """Operators of the token embedding (and the learned positions)."""
    positions = sym.max_positions * sym.hidden if model.positions == "learned" else ZERO
    mask = (Tensor("embedding dropout mask", MASK_BYTES * tokens * sym.hidden / sequence_shard),)
    lookup = Operator(
        "token embedding",
        forward_s=elementwise_s(2 * residual_bytes),
        input_grad_s=ZERO,
        # Rows of the accumulated gradient are read and written.
        weight_grad_s=elementwise_s((ACTIVATION_BYTES + 2 * recipe.gradient_bytes) * tokens * sym.hidden),
        parameters=sym.padded_vocab * sym.hidden / sym.tp + positions,
        saved=mask if recipe.dropout else (),
    )
    return lookup, _leave_tensor_parallel("embedding")


def head(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """Operators of the final norm, the output projection and the loss.

    The logits are not among the saved tensors: memory.py counts them by the recipe's bytes per logit.
    """
    logits = tokens * sym.padded_vocab / sym.tp
    token_scalars = 4 * tokens  # fp32: maximum, sum and target logit of each token are reduced over TP
    forward_bytes, backward_bytes = LOSS_TRAFFIC_BYTES
    loss = Operator(
        "loss", elementwise_s(forward_bytes * logits), elementwise_s(backward_bytes * logits), kernels=LOSS_KERNELS
    )
    reduced = 3 * all_reduce_s(token_scalars, sym.tp, 1)
    reductions = Operator("loss reductions", reduced, ZERO, kernels=3 * at_least(sym.tp, 2), communication=True)
    return (
        _norm("final norm", model, "head input"),
        _enter_tensor_parallel("head", gemm_input_grad_s(tokens, sym.hidden, sym.padded_vocab / sym.tp)),
        _linear("head", sym.hidden, sym.padded_vocab / sym.tp, bias=False),
        loss,
        reductions,
    )


def _attention_block(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    qkv_width = query_width + key_value_width
    rope_bytes = 2 * ACTIVATION_BYTES * tokens * (query_width + key_value_width / 2)
    rope = Operator("rotary embedding", elementwise_s(rope_bytes), elementwise_s(rope_bytes), kernels=2)
    qkv_saved = (Tensor("query, key, value", ACTIVATION_BYTES * tokens * qkv_width),)
    return (
        _norm("input norm", model, "layer input"),
        _enter_tensor_parallel("attention", gemm_input_grad_s(tokens, sym.hidden, qkv_width)),
        _linear("qkv projection", sym.hidden, qkv_width, bias=model.qkv_bias, saved=qkv_saved),
        *((rope,) if model.positions == "rope" else ()),
        _core_attention(recipe),
        _linear("output projection", query_width, sym.hidden, bias=model.attention_output_bias, row_parallel=True),
        _leave_tensor_parallel("attention"),
        _residual("attention residual", recipe),
    )


def _mlp_block(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    inner = sym.ffn / sym.tp
    matrices = 2 if model.gated_mlp else 1
    first_saved = (Tensor("MLP pre-activation", ACTIVATION_BYTES * tokens * matrices * inner, ("mlp",)),)
    activation = Operator(
        "activation",
        elementwise_s(ACTIVATION_BYTES * tokens * (matrices + 1) * inner),
        elementwise_s(ACTIVATION_BYTES * tokens * (2 * matrices + 1) * inner),
        saved=(Tensor("MLP activation", ACTIVATION_BYTES * tokens * inner, ("activation", "mlp")),),
        modules=("activation", "mlp"),
    )
    return (
        _norm("post-attention norm", model, "MLP residual"),
        _enter_tensor_parallel("mlp", gemm_input_grad_s(tokens, sym.hidden, matrices * inner), ("mlp",)),
        _linear("MLP up", sym.hidden, matrices * inner, bias=model.mlp_bias, saved=first_saved, modules=("mlp",)),
        activation,
        _linear("MLP down", inner, sym.hidden, bias=model.mlp_bias, row_parallel=True, modules=("mlp",)),
        _leave_tensor_parallel("mlp", ("mlp",)),
        _residual("MLP residual add", recipe),
    )


def _norm(name: str, model: ModelSpec, input_name: str) -> Operator:
    """A norm with its input (the residual stream, never freed by a selective set) and its output."""
    local_bytes = residual_bytes / sequence_shard
    vectors = 2 if model.norm == "layernorm" else 1
    return Operator(
        name,
        elementwise_s(2 * local_bytes),
        elementwise_s(3 * local_bytes),
        parameters=vectors * sym.hidden,
        saved=(Tensor(input_name, local_bytes), Tensor(f"{name} output", local_bytes, ("norm",))),
        modules=("norm",),
    )


def _linear(
    name: str,
    inputs: Expr,
    outputs: Expr,
    *,
    bias: bool,
    saved: tuple[Tensor, ...] = (),
    modules: tuple[str, ...] = (),
    row_parallel: bool = False,
) -> Operator:
    """A matrix product; `inputs` and `outputs` are the widths on one rank."""
    bias_width = (sym.hidden if row_parallel else outputs) if bias else ZERO
    return Operator(
        name,
        gemm_forward_s(tokens, outputs, inputs),
        gemm_input_grad_s(tokens, inputs, outputs),
        gemm_weight_grad_s(outputs, inputs, tokens),
        parameters=inputs * outputs + bias_width,
        saved=saved,
        modules=modules,
    )


def _core_attention(recipe: FrameworkRecipe) -> Operator:
    output = Tensor("attention output", ACTIVATION_BYTES * tokens * query_width)
    if recipe.flash_attention:
        sizes = (sym.micro_batch_size, sym.heads / sym.tp, sym.seq_len / sym.cp, sym.seq_len, sym.head_dim)
        return Operator(
            "core attention",
            attention_forward_s(*sizes),
            attention_backward_s(*sizes),
            saved=(output,),
            modules=("core_attention",),
        )
    # Unfused: two full (not causal) products a head, and the score matrix goes through memory.
    rows = attention_scores / sym.seq_len
    products = gemm_forward_s(rows, sym.seq_len, sym.head_dim) + gemm_forward_s(rows, sym.head_dim, sym.seq_len)
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
        saved=(output, Tensor("attention scores", kept * attention_scores, ("core_attention",))),
        modules=("core_attention",),
        kernels=kernels,
    )


def _residual(name: str, recipe: FrameworkRecipe) -> Operator:
    local_bytes = residual_bytes / sequence_shard
    mask = (Tensor(f"{name} dropout mask", MASK_BYTES * tokens * sym.hidden / sequence_shard),)
    saved = mask if recipe.dropout else ()
    return Operator(name, elementwise_s(3 * local_bytes), elementwise_s(3 * local_bytes), saved=saved)


def _enter_tensor_parallel(name: str, input_grad_gemm: Expr, modules: tuple[str, ...] = ()) -> Operator:
    """The collective before a column-parallel product: gather with SP, nothing without; its adjoint in the backward.

    With SP the sharded input is gathered a second time for the weight gradient; that runs beside the input gradient.
    """
    gather = all_gather_s(residual_bytes, sym.tp, 1)
    scatter = reduce_scatter_s(residual_bytes, sym.tp, 1)
    reduce = all_reduce_s(residual_bytes, sym.tp, 1)
    return Operator(
        f"{name} gather",
        sym.sequence_parallel * gather,
        sym.sequence_parallel * (scatter + exposed_s(input_grad_gemm, gather)) + (1 - sym.sequence_parallel) * reduce,
        modules=modules,
        kernels=at_least(sym.tp, 2),
        communication=True,
    )


def _leave_tensor_parallel(name: str, modules: tuple[str, ...] = ()) -> Operator:
    """The collective after a row-parallel product: reduce-scatter with SP, all-reduce without."""
    scatter = reduce_scatter_s(residual_bytes, sym.tp, 1)
    reduce = all_reduce_s(residual_bytes, sym.tp, 1)
    return Operator(
        f"{name} reduce",
        sym.sequence_parallel * scatter + (1 - sym.sequence_parallel) * reduce,
        sym.sequence_parallel * all_gather_s(residual_bytes, sym.tp, 1),
        modules=modules,
        kernels=at_least(sym.tp, 2),
        communication=True,
    )

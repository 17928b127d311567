"""The parts that layers are built of: an operator, the tensors it keeps, and the operators that every layer shares.

Seconds are opaque operators (`operators`) until a hardware profile is bound; sizes are symbols. All volumes are those
of one micro-batch on one rank.
"""

from dataclasses import dataclass
from typing import Any, Literal

from sympy import Integer

from cost_models import symbols as sym
from cost_models.operators import (
    ELEMENTWISE,
    all_gather_s,
    all_reduce_s,
    at_least,
    elementwise_s,
    exposed_s,
    gemm_forward_s,
    gemm_input_grad_s,
    gemm_weight_grad_s,
    reduce_scatter_s,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = [
    "ACTIVATION_BYTES",
    "MASK_BYTES",
    "ZERO",
    "Block",
    "Operator",
    "Tensor",
    "cast_s",
    "enter_tensor_parallel",
    "leave_tensor_parallel",
    "linear",
    "norm",
    "norm_vectors",
    "operand_bytes",
    "residual",
    "residual_bytes",
    "sequence_shard",
    "tokens",
]

Expr = Any
Communication = Literal["tensor_parallel", "context_parallel", "expert_parallel"]

ACTIVATION_BYTES = 2  # bf16
MASK_BYTES = 1
# Moved by casting an element of an operand, bytes: bf16 is read, written are rows and columns in fp8.
CAST_BYTES = 4
# An RMS norm as separate kernels, forward and backward, in passes of two bytes an element: cast to fp32 (3), square
# (4), mean (2), scale (4), cast back (3), weight (2); about twice that backward.
EAGER_NORM_PASSES, EAGER_NORM_KERNELS = (18, 36), 6
ZERO = Integer(0)

tokens = sym.micro_batch_size * sym.slice_len / sym.cp
sequence_shard = 1 + sym.sequence_parallel * (sym.tp - 1)
residual_bytes = ACTIVATION_BYTES * tokens * sym.hidden


@dataclass(frozen=True)
class Tensor:
    """A tensor kept for the backward, in bytes, and the recompute modules that free it."""

    name: str
    bytes: Expr
    freed_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Operator:
    """One operator: seconds, the parameters it owns, the tensors it keeps.

    `parameters` are sharded with the dense states, `expert_parameters` with the experts'. `modules` are the entries of
    the recompute vocabulary that run it again; `kernels` counts the launches of the forward, and of the input gradient,
    `launches_of_products` those of the weight gradient where there is one; `communication` names the group whose
    collective it is. `gradient_bytes` are those of the output's gradient, which the weight gradient is made of.
    """

    name: str
    forward_s: Expr
    input_grad_s: Expr
    weight_grad_s: Expr = ZERO
    parameters: Expr = ZERO
    saved: tuple[Tensor, ...] = ()
    modules: tuple[str, ...] = ()
    kernels: Expr = 1
    communication: Communication | None = None
    expert_parameters: Expr = ZERO
    launches_of_products: Expr = 1
    gradient_bytes: Expr = ZERO


Block = tuple[Operator, ...]


def norm(name: str, model: ModelSpec, recipe: FrameworkRecipe, input_name: str) -> Operator:
    """A norm with its input (the residual stream, never freed by a selective set) and its output.

    An RMS norm that is not fused (a layer norm always is) works on an fp32 copy, kept with what the weight multiplies.
    """
    local_bytes = residual_bytes / sequence_shard
    output_bytes = operand_bytes(recipe) * tokens * sym.hidden  # kept as the next product's operand
    if not recipe.keeps_gathered_operands:
        output_bytes /= sequence_shard
    eager = model.norm == "rmsnorm" and not recipe.fused_norm
    forward, backward = EAGER_NORM_PASSES if eager else (2, 3)
    kept = (Tensor(f"{name} copies", 2 * local_bytes, ("norm",)),) if eager else ()
    return Operator(
        name,
        ELEMENTWISE["norm_forward"](forward * local_bytes),
        ELEMENTWISE["norm_backward"](backward * local_bytes),
        parameters=norm_vectors(model) * sym.hidden,
        saved=(Tensor(input_name, local_bytes), Tensor(f"{name} output", output_bytes, ("norm",)), *kept),
        modules=("norm",),
        kernels=EAGER_NORM_KERNELS if eager else 1,
        gradient_bytes=local_bytes,
    )


def operand_bytes(recipe: FrameworkRecipe) -> Expr:
    """Bytes of an element that is kept as the operand of a product and for nothing else."""
    return ACTIVATION_BYTES - sym.quantised * int(recipe.keeps_cast_operands)


def cast_s(elements: Expr) -> Expr:
    """Seconds of casting the elements of an operand to its precision, none in bf16."""
    return elementwise_s(CAST_BYTES * sym.quantised * elements)


def norm_vectors(model: ModelSpec) -> int:
    """Parameters of a norm for each element that it norms: a weight, and a bias in a layer norm."""
    return 2 if model.norm == "layernorm" else 1


def linear(
    name: str,
    inputs: Expr,
    outputs: Expr,
    *,
    bias: bool,
    saved: tuple[Tensor, ...] = (),
    modules: tuple[str, ...] = (),
    row_parallel: bool = False,
    rows: Expr = tokens,
) -> Operator:
    """A matrix product; `inputs` and `outputs` are the widths on one rank, `rows` its tokens."""
    bias_width = (sym.hidden if row_parallel else outputs) if bias else ZERO
    return Operator(
        name,
        gemm_forward_s(rows, outputs, inputs) + cast_s(rows * inputs),
        gemm_input_grad_s(rows, inputs, outputs) + cast_s(rows * outputs),
        gemm_weight_grad_s(outputs, inputs, rows),
        kernels=1 + sym.quantised,
        parameters=inputs * outputs + bias_width,
        saved=saved,
        modules=modules,
        gradient_bytes=ACTIVATION_BYTES * rows * outputs,
    )


def residual(name: str, recipe: FrameworkRecipe) -> Operator:
    local_bytes = residual_bytes / sequence_shard
    mask = (Tensor(f"{name} dropout mask", MASK_BYTES * tokens * sym.hidden / sequence_shard),)
    saved = mask if recipe.dropout else ()
    passes = (ELEMENTWISE["residual_forward"](3 * local_bytes), ELEMENTWISE["residual_backward"](3 * local_bytes))
    return Operator(name, *passes, saved=saved)


def enter_tensor_parallel(name: str, recipe: FrameworkRecipe, width: Expr, modules: tuple[str, ...] = ()) -> Operator:
    """The collective before a column-parallel product of `width` outputs: gather with SP, nothing without; its adjoint
    in the backward.

    With SP the sharded input is gathered a second time for the weight gradient; that runs beside the input gradient.
    """
    gather = all_gather_s(residual_bytes, sym.tp, 1)
    scatter = reduce_scatter_s(residual_bytes, sym.tp, 1)
    reduce = all_reduce_s(residual_bytes, sym.tp, 1)
    input_grad = gemm_input_grad_s(tokens, sym.hidden, width)
    weight_grad = gemm_weight_grad_s(width, sym.hidden, tokens)
    scattered = _beside(recipe, weight_grad, scatter) + exposed_s(input_grad, gather)
    return Operator(
        f"{name} gather",
        sym.sequence_parallel * _beside(recipe, gemm_forward_s(tokens, width, sym.hidden), gather),
        sym.sequence_parallel * scattered + (1 - sym.sequence_parallel) * _beside(recipe, weight_grad, reduce),
        modules=modules,
        kernels=at_least(sym.tp, 2),
        communication="tensor_parallel",
    )


def leave_tensor_parallel(name: str, recipe: FrameworkRecipe, width: Expr, modules: tuple[str, ...] = ()) -> Operator:
    """The collective after a row-parallel product of `width` inputs (0: after a look-up): reduce-scatter with SP,
    all-reduce without."""
    scatter = reduce_scatter_s(residual_bytes, sym.tp, 1)
    reduce = all_reduce_s(residual_bytes, sym.tp, 1)
    gather = all_gather_s(residual_bytes, sym.tp, 1)
    if width != 0:
        scatter = _beside(recipe, gemm_forward_s(tokens, sym.hidden, width), scatter)
        gather = _beside(recipe, gemm_input_grad_s(tokens, width, sym.hidden), gather)
    return Operator(
        f"{name} reduce",
        sym.sequence_parallel * scatter + (1 - sym.sequence_parallel) * reduce,
        sym.sequence_parallel * gather,
        modules=modules,
        kernels=at_least(sym.tp, 2),
        communication="tensor_parallel",
    )


def _beside(recipe: FrameworkRecipe, product_s: Expr, collective_s: Expr) -> Expr:
    """What a collective adds to the product that it feeds or follows: all of it, or where the recipe overlaps them, the
    first of tp pieces and what the product cannot hide of the others (Wang et al. 2023, ASPLOS).

    The product runs in as many pieces, each with a kernel's fixed time, that of a product of nothing."""
    if not recipe.overlap_tensor_parallel:
        return collective_s
    piece, fixed = collective_s / sym.tp, gemm_forward_s(1, 1, 1)
    return piece + exposed_s(product_s, collective_s - piece) + (sym.tp - 1) * fixed

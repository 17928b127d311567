"""The parts that layers are built of: an operator, the tensors it keeps, and the operators that every layer shares.

Seconds are opaque operators (`operators`) until a hardware profile is bound; sizes are symbols. All volumes are those
of one micro-batch on one rank.
"""

from dataclasses import dataclass
from typing import Any, Literal

from sympy import Integer

from cost_models import symbols as sym
from cost_models.operators import (
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
    "enter_tensor_parallel",
    "leave_tensor_parallel",
    "linear",
    "norm",
    "norm_vectors",
    "residual",
    "residual_bytes",
    "sequence_shard",
    "tokens",
]

Expr = Any
Communication = Literal["tensor_parallel", "context_parallel", "expert_parallel"]

ACTIVATION_BYTES = 2  # bf16
MASK_BYTES = 1
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
    the recompute vocabulary that run it again; `kernels` counts the launches of
    the forward, and of the input gradient; `communication` names the group
    whose collective it is.
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


Block = tuple[Operator, ...]


def norm(name: str, model: ModelSpec, input_name: str) -> Operator:
    """A norm with its input (the residual stream, never freed by a selective set) and its output."""
    local_bytes = residual_bytes / sequence_shard
    return Operator(
        name,
        elementwise_s(2 * local_bytes),
        elementwise_s(3 * local_bytes),
        parameters=norm_vectors(model) * sym.hidden,
        saved=(Tensor(input_name, local_bytes), Tensor(f"{name} output", local_bytes, ("norm",))),
        modules=("norm",),
    )


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
        gemm_forward_s(rows, outputs, inputs),
        gemm_input_grad_s(rows, inputs, outputs),
        gemm_weight_grad_s(outputs, inputs, rows),
        parameters=inputs * outputs + bias_width,
        saved=saved,
        modules=modules,
    )


def residual(name: str, recipe: FrameworkRecipe) -> Operator:
    local_bytes = residual_bytes / sequence_shard
    mask = (Tensor(f"{name} dropout mask", MASK_BYTES * tokens * sym.hidden / sequence_shard),)
    saved = mask if recipe.dropout else ()
    return Operator(name, elementwise_s(3 * local_bytes), elementwise_s(3 * local_bytes), saved=saved)


def enter_tensor_parallel(name: str, input_grad_gemm: Expr, modules: tuple[str, ...] = ()) -> Operator:
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
        communication="tensor_parallel",
    )


def leave_tensor_parallel(name: str, modules: tuple[str, ...] = ()) -> Operator:
    """The collective after a row-parallel product: reduce-scatter with SP, all-reduce without."""
    scatter = reduce_scatter_s(residual_bytes, sym.tp, 1)
    reduce = all_reduce_s(residual_bytes, sym.tp, 1)
    return Operator(
        f"{name} reduce",
        sym.sequence_parallel * scatter + (1 - sym.sequence_parallel) * reduce,
        sym.sequence_parallel * all_gather_s(residual_bytes, sym.tp, 1),
        modules=modules,
        kernels=at_least(sym.tp, 2),
        communication="tensor_parallel",
    )

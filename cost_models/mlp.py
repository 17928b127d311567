"""The MLP half of a layer: dense, or a mixture of experts with its router, dispatch and shared experts.

Expert parallelism: of the tp*cp*dp ranks of a stage, etp share each expert's matrices and ep share the experts; the
rest are replicas. Each rank routes its own (sequence-sharded) tokens to K experts: K copies go out by all-to-all, are
multiplied in grouped products, and come back. Balanced routing unless the workload says otherwise.
"""

from typing import Any

from cost_models import symbols as sym
from cost_models.blocks import (
    ACTIVATION_BYTES,
    ZERO,
    Block,
    Operator,
    Tensor,
    cast_s,
    enter_tensor_parallel,
    leave_tensor_parallel,
    linear,
    norm,
    operand_bytes,
    residual,
    sequence_shard,
    tokens,
)
from cost_models.operators import (
    ELEMENTWISE,
    all_gather_s,
    at_least,
    elementwise_s,
    expert_exchange_s,
    gemm_forward_s,
    gemm_input_grad_s,
    gemm_weight_grad_s,
    grouped_gemm_forward_s,
    grouped_gemm_input_grad_s,
    grouped_gemm_weight_grad_s,
    reduce_scatter_s,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["dense_block", "expert_block", "received"]

Expr = Any
ROUTER_BYTES = 4  # router logits and probabilities are fp32
# Launches for casting one expert's tokens: the largest value, rows, columns.
EXPERT_CAST_KERNELS = 6
# Launches of Megatron-Core's router (product, top-k, softmax, maps of tokens to experts, balancing loss, token counts)
# and of its dispatcher: indices and selection, splitting and joining by expert, weighting and summing up.
ROUTER_KERNELS, PERMUTE_KERNELS, SORT_KERNELS, UNPERMUTE_KERNELS = 24, 8, 3, 6
# Passes of two bytes over the elements of a gate, forward and backward, and kernels of a clamped gated activation: bias
# (4 of both halves), clamps (4), scale (2), sigmoid (2), product (3), shift (2), product (3), the router's weight (3).
CLAMPED_PASSES, CLAMPED_KERNELS = (23, 46), 10

routed_tokens = tokens / sequence_shard
copies = routed_tokens * sym.top_k
# Copies a rank multiplies after the exchange; with expert tensor parallelism a group shares the copies of its members.
received = copies * sym.etp * sym.expert_imbalance
local_experts = sym.experts / sym.ep


def dense_block(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """Operators of a dense MLP half."""
    return (
        norm("post-attention norm", model, recipe, "MLP residual"),
        *_matrices("MLP", model, recipe, sym.ffn, ("mlp",)),
        residual("MLP residual add", recipe),
    )


def expert_block(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """Operators of a mixture-of-experts half."""
    # Copies that travel by themselves arrive by sender and are sorted by expert; others are in place on arrival.
    sorting = (
        (_permutation("sort by expert", received, SORT_KERNELS),) if recipe.expert_dispatcher == "alltoall" else ()
    )
    shared = _matrices("shared expert", model, recipe, sym.shared_ffn, ("shared_experts",))
    return (
        norm("post-attention norm", model, recipe, "MLP residual"),
        *(shared if model.moe and model.moe.shared_ffn else ()),
        *((_shared_gate(),) if model.moe and model.moe.shared_expert_gate else ()),
        *_router(bool(model.moe and model.moe.router_bias)),
        _dispatch("dispatch"),
        *sorting,
        *_experts(model, recipe),
        *sorting,
        _dispatch("combine"),
        _permutation("unpermute", copies, UNPERMUTE_KERNELS),
        residual("MLP residual add", recipe),
    )


def _matrices(name: str, model: ModelSpec, recipe: FrameworkRecipe, width: Expr, modules: tuple[str, ...]) -> Block:
    """A dense MLP of some inner width, tensor parallel: column then row."""
    inner = width / sym.tp
    matrices = 2 if model.gated_mlp else 1
    saved = (Tensor(f"{name} pre-activation", ACTIVATION_BYTES * tokens * matrices * inner, modules),)
    return (
        enter_tensor_parallel(name, recipe, matrices * inner, modules),
        linear(f"{name} up", sym.hidden, matrices * inner, bias=model.mlp_bias, saved=saved, modules=modules),
        _activation(name, recipe, tokens, inner, matrices, modules),
        linear(f"{name} down", inner, sym.hidden, bias=model.mlp_bias, row_parallel=True, modules=modules),
        leave_tensor_parallel(name, recipe, inner, modules),
    )


def _shared_gate() -> Operator:
    """A learned logit for each token scales the shared experts' output, which is kept for the logit's gradient."""
    size = ACTIVATION_BYTES * routed_tokens * sym.hidden
    modules = ("shared_experts",)
    return Operator(
        "shared expert gate",
        elementwise_s(3 * size),
        elementwise_s(5 * size),
        parameters=sym.hidden,
        saved=(Tensor("shared expert output", size, modules),),
        modules=modules,
        kernels=3,
    )


def _biased_activation(recipe: FrameworkRecipe, rows: Expr, inner: Expr) -> Operator:
    """A clamped, gated activation behind biases (GPT-OSS) as Megatron-Core runs it: a chain of elementwise kernels.

    Per element of the gate: the bias added (2 in, 2 out, of both halves), both clamped, the gate scaled, its sigmoid,
    their product, one added to the other half, the product of the two, and the router's weight.
    """
    modules = ("activation", "moe")
    size = ACTIVATION_BYTES * rows * inner
    return Operator(
        "expert activation",
        ELEMENTWISE["activation_forward"](CLAMPED_PASSES[0] * size),
        ELEMENTWISE["activation_backward"](CLAMPED_PASSES[1] * size),
        saved=(Tensor("expert activation", operand_bytes(recipe) * rows * inner, modules),),
        modules=modules,
        kernels=CLAMPED_KERNELS,
    )


def _activation(
    name: str, recipe: FrameworkRecipe, rows: Expr, inner: Expr, matrices: int, modules: tuple[str, ...]
) -> Operator:
    """The activation; a gated one that is not fused writes the activated gate, keeps it, and reads it again."""
    modules = ("activation", *modules)
    size = ACTIVATION_BYTES * rows * inner
    extra = int(matrices == 2 and not recipe.fused_activation)
    return Operator(
        f"{name} activation",
        ELEMENTWISE["activation_forward"]((matrices + 1 + 2 * extra) * size),
        ELEMENTWISE["activation_backward"]((2 * matrices + 1 + 3 * extra) * size),
        saved=(Tensor(f"{name} activation", extra * size + operand_bytes(recipe) * rows * inner, modules),),
        modules=modules,
        kernels=1 + extra,
    )


def _router(biased: bool) -> Block:
    logits = routed_tokens * sym.experts
    product = Operator(
        "router",
        gemm_forward_s(routed_tokens, sym.experts, sym.hidden) + elementwise_s(3 * ROUTER_BYTES * logits),
        gemm_input_grad_s(routed_tokens, sym.hidden, sym.experts) + elementwise_s(3 * ROUTER_BYTES * logits),
        gemm_weight_grad_s(sym.experts, sym.hidden, routed_tokens),
        parameters=sym.hidden * sym.experts + (sym.experts if biased else ZERO),
        saved=(Tensor("router probabilities", ROUTER_BYTES * logits, ("moe",)),),
        modules=("moe",),
        kernels=ROUTER_KERNELS,
    )
    return product, _permutation("permute", copies, PERMUTE_KERNELS)


def _permutation(name: str, rows: Expr, kernels: int) -> Operator:
    """Copies read and written in the order of their experts (or back)."""
    moved = 2 * ACTIVATION_BYTES * rows * sym.hidden
    return Operator(name, elementwise_s(moved), elementwise_s(moved), modules=("moe",), kernels=kernels)


def _dispatch(name: str) -> Operator:
    """The copies' way to their experts (or back): an exchange over the ranks that share the experts, then, with expert
    tensor parallelism, a gather over those that share one expert (its adjoint, a reduce-scatter, the other way)."""
    sent = ACTIVATION_BYTES * copies * sym.hidden * sym.expert_imbalance
    exchange = expert_exchange_s(sent, sym.top_k, sym.ep, sym.etp)
    gather, scatter = (collective(sent * sym.etp, sym.etp, 1) for collective in (all_gather_s, reduce_scatter_s))
    forward, backward = (gather, scatter) if name == "dispatch" else (scatter, gather)
    return Operator(
        f"expert {name}",
        exchange + forward,
        exchange + backward,
        modules=("moe",),
        kernels=2 * at_least(sym.ep * sym.etp, 2),
        communication="expert_parallel",
    )


def _experts(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    inner = sym.expert_ffn / sym.etp
    matrices = 2 if model.gated_mlp else 1
    kept = Tensor("dispatched copies", operand_bytes(recipe) * received * sym.hidden, ("moe",))
    pre = Tensor("expert pre-activation", ACTIVATION_BYTES * received * matrices * inner, ("moe",))
    biases = bool(model.moe and model.moe.expert_bias)
    if biases and not recipe.fused_biased_activation:
        activation = _biased_activation(recipe, received, inner)
    else:
        activation = _activation("expert", recipe, received, inner, matrices, ("moe",))
    return (
        _grouped("expert up", recipe, sym.hidden, matrices * inner, matrices * inner if biases else ZERO, (kept, pre)),
        activation,
        _grouped("expert down", recipe, inner, sym.hidden, sym.hidden if biases else ZERO, ()),
    )


def _grouped(
    name: str, recipe: FrameworkRecipe, inputs: Expr, outputs: Expr, bias: Expr, saved: tuple[Tensor, ...]
) -> Operator:
    """One product an expert, launched one by one or all at once; each expert's tokens are cast by themselves."""
    launches = local_experts if recipe.launches_per_expert else 1
    return Operator(
        name,
        grouped_gemm_forward_s(received, outputs, inputs, local_experts) + cast_s(received * inputs),
        grouped_gemm_input_grad_s(received, inputs, outputs, local_experts) + cast_s(received * outputs),
        grouped_gemm_weight_grad_s(outputs, inputs, received, local_experts),
        kernels=(1 + EXPERT_CAST_KERNELS * sym.quantised) * launches,
        launches_of_products=launches,
        expert_parameters=local_experts * (inputs * outputs + bias),
        gradient_bytes=ACTIVATION_BYTES * received * outputs,
        saved=saved,
        modules=("moe",),
    )

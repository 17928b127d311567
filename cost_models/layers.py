"""The chain of a model: its ends and the group of layers that repeats between them, as lists of operators.

A model is leading layers, a period that repeats, and trailing layers (`ModelSpec.layer_pattern`). The period is what
pipeline stages are dealt, so that every stage of n periods costs the same wherever it starts; the leading layers go
with the embedding, the trailing ones and multi-token prediction with the head.
"""

from dataclasses import dataclass, replace
from typing import Any

from cost_models import symbols as sym
from cost_models.attention import attention_block
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
    residual_bytes,
    sequence_shard,
    tokens,
)
from cost_models.mlp import dense_block, expert_block
from cost_models.operators import ELEMENTWISE, all_reduce_s, at_least, exposed_s
from cost_models.specs.layer_pattern import LayerKind
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["LOSS_TRAFFIC_SHARES", "Chain", "Unit", "chain", "layer"]

Expr = Any

# Of the bytes moved for one logit: forward reads bf16, writes and reads fp32 (10 of 16 where it is unfused); backward
# reads fp32, writes bf16. Six kernels: the cast, the largest, the exponentials, their sum, the logarithm, the gradient.
LOSS_TRAFFIC_SHARES = (10 / 16, 6 / 16)
LOSS_KERNELS = 6


@dataclass(frozen=True)
class Unit:
    """What a stage holds whole: operators of its own and layers, which alone are recomputed."""

    own: Block
    layers: tuple[Block, ...]

    @property
    def operators(self) -> Block:
        """All operators, those of the layers included."""
        return (*self.own, *(operator for block in self.layers for operator in block))


@dataclass(frozen=True)
class Chain:
    """A model as the pipeline sees it."""

    embedding: Unit
    layer: Unit
    head: Unit

    def units(self) -> dict[str, Unit]:
        """The units by name."""
        return {"layer": self.layer, "embedding": self.embedding, "head": self.head}


def chain(model: ModelSpec, recipe: FrameworkRecipe) -> Chain:
    """The embedding with the leading layers, the repeating group, the head with the trailing layers."""
    pattern = model.layer_pattern

    def blocks(kinds: tuple[LayerKind, ...]) -> tuple[Block, ...]:
        return tuple(layer(model, recipe, kind) for kind in kinds)

    ahead = blocks((model.mtp_kind,) * model.mtp_layers)
    return Chain(
        embedding=Unit(_embedding(model, recipe), blocks(pattern.leading)),
        layer=Unit((), blocks(pattern.period)),
        head=Unit(
            (*_head(model, recipe), *_multi_token_prediction(model, recipe)), (*blocks(pattern.trailing), *ahead)
        ),
    )


def layer(model: ModelSpec, recipe: FrameworkRecipe, kind: LayerKind) -> Block:
    """Operators of one decoder layer, in the order of the forward."""
    mlp = expert_block(model, recipe) if kind.moe else dense_block(model, recipe)
    block = (*attention_block(model, recipe, kind.window), *mlp)
    if model.norm_placement == "both":
        block = (
            *block,
            _output_norm("attention output norm", model, recipe),
            _output_norm("MLP output norm", model, recipe),
        )
    if model.norm_placement == "after":
        block = tuple(_on_output(operator) for operator in block)
    if kind.moe and recipe.overlap_expert_parallel:
        block = _beside_exchanges(block)
    return _one_residual(block, model) if model.parallel_block else block


def _beside_exchanges(block: Block) -> Block:
    """A layer whose expert exchanges run beside the compute of the same layer of another micro-batch.

    What the compute cannot hide stands at the first of them.
    """
    compute = [operator for operator in block if operator.communication is None]
    exchanges = [operator for operator in block if operator.communication == "expert_parallel"]
    first = replace(
        exchanges[0],
        forward_s=exposed_s(_total(compute, "forward_s"), _total(exchanges, "forward_s")),
        input_grad_s=exposed_s(
            _total(compute, "input_grad_s") + _total(compute, "weight_grad_s"), _total(exchanges, "input_grad_s")
        ),
    )
    hidden = {operator.name: replace(operator, forward_s=ZERO, input_grad_s=ZERO) for operator in exchanges[1:]}
    return tuple(first if operator is exchanges[0] else hidden.get(operator.name, operator) for operator in block)


def _total(operators: list[Operator], cost: str) -> Expr:
    return sum((getattr(operator, cost) for operator in operators), start=ZERO)


def _one_residual(block: Block, model: ModelSpec) -> Block:
    """A block whose halves both read the layer's input: one addition, and one norm where they share it."""
    kept = []
    for operator in block:
        if operator.name == "attention residual" or (model.shared_norm and operator.name == "post-attention norm"):
            continue
        if operator.name == "post-attention norm":  # its input is the layer's, already kept
            operator = replace(operator, saved=operator.saved[1:])
        kept.append(operator)
    return tuple(kept)


def _output_norm(name: str, model: ModelSpec, recipe: FrameworkRecipe) -> Operator:
    """A norm on the output of a half layer: it keeps its input, which nothing else needs."""
    plain = norm(name, model, recipe, f"{name} input")
    return replace(plain, saved=plain.saved[:1])


def _on_output(operator: Operator) -> Operator:
    """An operator of a layer whose norms stand on outputs: nothing frees what a norm hands to the residual stream.

    A layer then keeps what its halves read and what its norms read, as many tensors as with norms on the inputs.
    """
    if operator.name not in ("input norm", "post-attention norm"):
        return operator
    saved = tuple(replace(tensor, freed_by=()) for tensor in operator.saved)
    return replace(operator, saved=saved, modules=())


def _embedding(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    positions = sym.position_rows * sym.hidden if model.positions == "learned" else ZERO
    # Rows of the accumulated gradient are read and written.
    added = (ACTIVATION_BYTES + 2 * recipe.gradient_bytes) * tokens * sym.hidden
    mask = (Tensor("embedding dropout mask", MASK_BYTES * tokens * sym.hidden / sequence_shard),)
    lookup = Operator(
        "token embedding",
        forward_s=ELEMENTWISE["embedding_forward"](2 * residual_bytes),
        input_grad_s=ZERO,
        weight_grad_s=ELEMENTWISE["embedding_backward"](added),
        parameters=sym.padded_vocab * sym.hidden / sym.tp + positions,
        saved=mask if recipe.dropout else (),
    )
    extra = (_output_norm("embedding norm", model, recipe),) if model.embedding_norm else ()
    return lookup, leave_tensor_parallel("embedding", recipe, ZERO), *extra


def _head(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """The final norm, the output projection and the loss.

    The logits are not among the saved tensors: memory.py counts them by the recipe's bytes per logit.
    """
    local_vocab = sym.padded_vocab / sym.tp
    return (
        norm("final norm", model, recipe, "head input"),
        enter_tensor_parallel("head", recipe, local_vocab),
        linear("head", sym.hidden, local_vocab, bias=model.head_bias),
        *_loss(recipe, local_vocab),
    )


def _loss(recipe: FrameworkRecipe, local_vocab: Expr) -> Block:
    logits = tokens * local_vocab
    token_scalars = 4 * tokens  # fp32: maximum, sum and target logit of each token are reduced over TP
    forward_bytes, backward_bytes = (share * recipe.loss_traffic_bytes for share in LOSS_TRAFFIC_SHARES)
    passes = (
        ELEMENTWISE["loss_forward"](forward_bytes * logits),
        ELEMENTWISE["loss_backward"](backward_bytes * logits),
    )
    loss = Operator("loss", *passes, kernels=LOSS_KERNELS)
    reduced = 3 * all_reduce_s(token_scalars, sym.tp, 1)
    kernels = 3 * at_least(sym.tp, 2)
    return loss, Operator("loss reductions", reduced, ZERO, kernels=kernels, communication="tensor_parallel")


def _multi_token_prediction(model: ModelSpec, recipe: FrameworkRecipe) -> Block:
    """What each MTP layer adds beside a decoder layer: two norms, the joining projection, a pass of the shared head."""
    if not model.mtp_layers:
        return ()
    local_vocab = sym.padded_vocab / sym.tp
    shared = replace(linear("MTP head", sym.hidden, local_vocab, bias=False), parameters=ZERO)
    joining = linear("MTP projection", 2 * sym.hidden, sym.hidden / sym.tp, bias=False)
    return (
        norm("MTP hidden norm", model, recipe, "MTP hidden input"),
        norm("MTP embedding norm", model, recipe, "MTP embedding input"),
        joining,
        norm("MTP final norm", model, recipe, "MTP head input"),
        enter_tensor_parallel("MTP head", recipe, local_vocab),
        shared,
        *_loss(recipe, local_vocab),
    ) * model.mtp_layers

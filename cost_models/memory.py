"""Bytes by cause on one rank of a pipeline stage, at the peak of each phase of a step.

Model states: Rajbhandari et al. 2020 (ZeRO), with the recipe's bytes per parameter; activations: the saved tensors of
`layers`. Phases are the loss, the backward (whose first layer meets all activations in flight; no forward holds more)
and the optimizer step (states and temporaries, no activations). docs/cost_model.md says why each transient is there.
"""

from typing import Any

from cost_models import symbols as sym
from cost_models.layers import (
    ACTIVATION_BYTES,
    ZERO,
    Block,
    attention_scores,
    residual_bytes,
    sequence_shard,
    tokens,
)
from cost_models.operators import at_least, ceiling, maximum
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = [
    "CAUSES",
    "block_parameters",
    "boundary_bytes",
    "micro_batch_bytes",
    "recomputed_saved_bytes",
    "saved_bytes",
    "shared_parameters",
    "stage_bytes",
    "stage_parameters",
    "workspace_bytes",
]

Expr = Any

CAUSES = (
    "weights",
    "gradients",
    "master_weights",
    "moments",
    "activations",
    "gathered_parameters",
    "logits_and_loss",
    "workspace",
    "pipeline_buffers",
    "communicators",
    "context",
    "fragmentation",
)

# Units of FSDP gathered at one time: the one in use and the one being prefetched. PyTorch's own planners (fsdp_ilp)
# count twice the largest as well.
GATHERED_UNITS = 2
# Boundary tensors a rank holds: one received and one to be sent, in each direction.
PIPELINE_BUFFERS = 4
# What is kept of one logit from the loss to its backward: the fp32 softmax (Korthikanti et al., section 4.2.3).
KEPT_LOGIT_BYTES = 4


def block_parameters(block: Block) -> Expr:
    """Parameters of a block on one tensor-parallel rank, elements."""
    return sum(operator.parameters for operator in block)


def shared_parameters(model: ModelSpec) -> Expr:
    """Parameters that embedding and head share, on one tensor-parallel rank."""
    return sym.padded_vocab * sym.hidden / sym.tp if model.tie_embeddings else ZERO


def stage_parameters() -> Expr:
    """Parameters of a stage on one tensor-parallel rank; tied embeddings count once where both ends are held."""
    held = sum(count * sym.PARTS[f"{unit}_parameters"] for unit, count in sym.HELD.items())
    return held - sym.has_embedding * sym.has_head * sym.PARTS["shared_parameters"]


def saved_bytes(block: Block) -> Expr:
    """Bytes that a block keeps of one micro-batch on one rank when nothing is recomputed."""
    return sum((tensor.bytes for operator in block for tensor in operator.saved), start=ZERO)


def recomputed_saved_bytes(block: Block) -> Expr:
    """Bytes that a block keeps of one micro-batch on one rank under the recompute flags.

    Full recompute keeps the first saved tensor (the block's input) alone.
    """
    tensors = [tensor for operator in block for tensor in operator.saved]
    selective: Expr = ZERO
    for tensor in tensors:
        kept: Expr = 1
        for module in tensor.freed_by:
            kept *= 1 - sym.RECOMPUTE_FLAGS[module]
        selective += kept * tensor.bytes
    return sym.recompute_full * tensors[0].bytes + (1 - sym.recompute_full) * selective


def boundary_bytes() -> Expr:
    """Bytes that one micro-batch sends across a pipeline boundary, one direction, on one rank."""
    return residual_bytes / sequence_shard


def workspace_bytes(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """Bytes that the backward through one layer needs beside what the layer has kept.

    The gradient of the residual stream, and the most of what the MLP's three steps hold after freeing what they have
    used: the gathered output gradient and the activation's; the pre-activation's; the gathered input and its gradient.
    Unfused attention holds the gradient of its scores instead.
    """
    inner = sym.ffn / sym.tp
    matrices = 2 if model.gated_mlp else 1
    widest = maximum(sym.hidden + maximum(inner, sym.sequence_parallel * sym.hidden), matrices * inner)
    of_mlp = ACTIVATION_BYTES * tokens * widest
    most = of_mlp if recipe.flash_attention else maximum(of_mlp, ACTIVATION_BYTES * attention_scores)
    return boundary_bytes() + most


def micro_batch_bytes(
    model: ModelSpec, layer: Block, embedding: Block, head: Block, recipe: FrameworkRecipe
) -> dict[str, Expr]:
    """Bytes of one micro-batch that depend on the degrees and the recompute set alone, by name."""
    plain, recomputed = saved_bytes(layer), recomputed_saved_bytes(layer)
    return {
        "layer_saved_bytes": plain,
        "layer_recomputed_saved_bytes": recomputed,
        "layer_workspace_bytes": workspace_bytes(model, recipe),
        "layer_restored_bytes": plain - recomputed,
        "embedding_saved_bytes": saved_bytes(embedding),
        "head_saved_bytes": saved_bytes(head),
        "logits_bytes": recipe.loss_bytes_per_logit * tokens * sym.padded_vocab / sym.tp,
        "boundary_bytes": boundary_bytes(),
    }


def stage_bytes(recipe: FrameworkRecipe, context_bytes: float) -> dict[str, Expr]:
    """Bytes by cause of one rank of a stage at its peak, and its allocated, reserved and device totals."""
    part = sym.PARTS
    parameters = stage_parameters()
    states = _state_bytes(parameters, recipe)
    gathered_elements = sym.reshard * GATHERED_UNITS * _largest_unit() + (1 - sym.reshard) * parameters
    gathered = sym.shard_weights * recipe.weight_bytes * gathered_elements
    activations = _activation_bytes()
    waiting = _waiting_logits_bytes(recipe)
    buffers = PIPELINE_BUFFERS * part["boundary_bytes"] * sym.pipelined
    workspace = _backward_bytes(recipe)
    loss = sym.has_head * part["logits_bytes"]
    optimizer = recipe.optimizer_temporary_bytes * parameters / _optimizer_shards()
    passes = activations + waiting + buffers + maximum(workspace, loss)
    # Which phase is the peak; ties go to the passes and to the loss.
    in_passes, in_loss = at_least(passes, optimizer), at_least(loss, workspace)
    causes: dict[str, Expr] = {
        **states,
        "activations": in_passes * activations,
        "gathered_parameters": gathered,
        "logits_and_loss": in_passes * (waiting + in_loss * loss),
        "workspace": in_passes * (1 - in_loss) * workspace + (1 - in_passes) * optimizer,
        "pipeline_buffers": in_passes * buffers,
    }
    allocated = sum(states.values()) + gathered + maximum(passes, optimizer)
    return _with_overheads(causes, allocated, recipe, context_bytes)


def _state_bytes(parameters: Expr, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Model-state bytes by cause: 18 B a parameter unsharded, then 6 + 12/r, 2 + 16/r, 18/r (Megatron recipe)."""

    def sharded(flag: Expr) -> Expr:
        return parameters * ((1 - flag) + flag / sym.dp_shard)

    return {
        "weights": recipe.weight_bytes * sharded(sym.shard_weights),
        "gradients": recipe.gradient_bytes * sharded(sym.shard_gradients),
        "master_weights": recipe.master_bytes * sharded(sym.shard_optimizer),
        "moments": recipe.moment_bytes * sharded(sym.shard_optimizer),
    }


def _optimizer_shards() -> Expr:
    return 1 + sym.shard_optimizer * (sym.dp_shard - 1)


def _largest_unit() -> Expr:
    """Parameters of the largest unit that is gathered or reduced by itself: a layer, the embedding or the head."""
    layer, embedding, head = (sym.PARTS[f"{unit}_parameters"] for unit in sym.HELD)
    return maximum(layer, maximum(sym.has_embedding * embedding, sym.has_head * head))


def _activation_bytes() -> Expr:
    part = sym.PARTS
    return (
        (sym.live_layers - sym.live_recompute_layers) * part["layer_saved_bytes"]
        + sym.live_recompute_layers * part["layer_recomputed_saved_bytes"]
        + sym.live_embedding * part["embedding_saved_bytes"]
        + sym.live_head * part["head_saved_bytes"]
    )


def _waiting_logits_bytes(recipe: FrameworkRecipe) -> Expr:
    """What the loss keeps of the micro-batches that wait for their backward (GPipe), beside the one at work."""
    if not recipe.loss_bytes_per_logit:
        return ZERO
    kept = min(1, KEPT_LOGIT_BYTES / recipe.loss_bytes_per_logit)
    return kept * sym.PARTS["logits_bytes"] * maximum(sym.live_head - 1, 0)


def _backward_bytes(recipe: FrameworkRecipe) -> Expr:
    """What the backward through one layer needs beside states and activations.

    A recomputed layer is restored whole; sharded gradients exist unsharded for a chunk (ZeRO-2) or a unit (ZeRO-3).
    """
    restored = at_least(sym.recompute_layers, 1) * sym.PARTS["layer_restored_bytes"]
    unsharded = (1 - sym.shard_weights) * _largest_chunk() + sym.shard_weights * _largest_unit()
    return sym.PARTS["layer_workspace_bytes"] + restored + recipe.gradient_bytes * sym.shard_gradients * unsharded


def _largest_chunk() -> Expr:
    """Parameters of a stage's largest chunk: layers as even as they go, and what ends of the model the stage holds."""
    fewer_layers = sym.layers - ceiling(sym.layers / sym.vpp)
    return stage_parameters() - fewer_layers * sym.PARTS["layer_parameters"]


def _with_overheads(
    causes: dict[str, Expr], allocated: Expr, recipe: FrameworkRecipe, context_bytes: float
) -> dict[str, Expr]:
    """Adds what no tensor shows: allocator fragmentation, communicator buffers, the device context."""
    fragmentation = recipe.fragmentation_fraction * allocated
    communicators = recipe.communicator_bytes * sym.communicators
    return {
        **causes,
        "communicators": communicators,
        "context": context_bytes,
        "fragmentation": fragmentation,
        "allocated_bytes": allocated,
        "reserved_bytes": allocated + fragmentation,
        "device_bytes": allocated + fragmentation + communicators + context_bytes,
    }

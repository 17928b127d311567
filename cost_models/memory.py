"""Bytes by cause on one rank of a pipeline stage, at the peak of each phase of a step.

Model states: Rajbhandari et al. 2020 (ZeRO), with the recipe's bytes per parameter; activations: the saved tensors of
`layers`. Phases are forward and backward (states, activations in flight, what one layer works in, logits) and the
optimizer step (states and temporaries, no activations).
"""

from typing import Any

from sympy import Max

from cost_models import symbols as y
from cost_models.layers import ACTIVATION_BYTES, Block, kv_heads_per_rank, residual_bytes, sequence_shard, tokens
from cost_models.operators import at_least
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["CAUSES", "block_parameters", "boundary_bytes", "micro_batch_bytes", "saved_bytes", "stage_bytes"]

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

# Units of FSDP gathered at one time: the one in use and the one being prefetched.
GATHERED_UNITS = 2
# Boundary tensors a rank holds: one received and one to be sent, in each direction.
PIPELINE_BUFFERS = 4


def block_parameters(block: Block) -> Expr:
    """Parameters of a block on one tensor-parallel rank, elements."""
    return sum(operator.parameters for operator in block)


def saved_bytes(block: Block) -> Expr:
    """Bytes that a block keeps of one micro-batch on one rank, under the recompute flags.

    Full recompute keeps the first saved tensor (the block's input) alone.
    """
    tensors = [tensor for operator in block for tensor in operator.saved]
    if not tensors:
        return 0
    selective = 0
    for tensor in tensors:
        kept = 1
        for module in tensor.freed_by:
            kept *= 1 - y.RECOMPUTE_FLAGS[module]
        selective += kept * tensor.bytes
    return y.recompute_full * tensors[0].bytes + (1 - y.recompute_full) * selective


def boundary_bytes() -> Expr:
    """Bytes that one micro-batch sends across a pipeline boundary, one direction, on one rank."""
    return residual_bytes / sequence_shard


def micro_batch_bytes(
    model: ModelSpec, layer: Block, embedding: Block, head: Block, recipe: FrameworkRecipe
) -> dict[str, Expr]:
    """Bytes of one micro-batch that depend on the degrees and the recompute set alone, by name."""
    nothing = dict.fromkeys(y.RECOMPUTE_FLAGS.values(), 0)
    plain = saved_bytes(layer).subs(nothing)
    recomputed = saved_bytes(layer)
    matrices = 2 if model.gated_mlp else 1
    widest = Max(
        matrices * y.ffn / y.tp, (y.heads / y.tp + 2 * kv_heads_per_rank) * y.head_dim, y.hidden, evaluate=False
    )
    logits = recipe.loss_bytes_per_logit * tokens * y.padded_vocab / y.tp
    return {
        "layer_saved_bytes": plain,
        "layer_recomputed_saved_bytes": recomputed,
        # Backward through one layer: the gathered input and the gradients of its widest tensor and that one's input.
        "layer_workspace_bytes": ACTIVATION_BYTES * tokens * (y.hidden + 2 * widest),
        "layer_restored_bytes": plain - recomputed,
        "embedding_saved_bytes": saved_bytes(embedding).subs(nothing) if recipe.dropout else 0,
        "head_saved_bytes": saved_bytes(head).subs(nothing),
        "logits_bytes": logits,
        "boundary_bytes": boundary_bytes(),
    }


def stage_bytes(
    layer: Expr,
    embedding: Expr,
    head: Expr,
    shared: Expr,
    recipe: FrameworkRecipe,
    context_bytes: float,
    part: dict[str, Expr],
) -> dict[str, Expr]:
    """Bytes by cause of one rank of a stage at its peak, and its allocated, reserved and device totals.

    `layer`, `embedding`, `head` are parameters on one rank; `shared` those that a stage holding both ends of a model
    with tied embeddings counts once. `part` are the names of `micro_batch_bytes` as symbols.
    """
    parameters = y.layers * layer + y.has_embedding * embedding + y.has_head * head
    parameters -= y.has_embedding * y.has_head * shared
    states = _state_bytes(parameters, recipe)
    largest = Max(layer, y.has_embedding * embedding, y.has_head * head, evaluate=False)
    gathered = (
        y.shard_weights * recipe.weight_bytes * (y.reshard * GATHERED_UNITS * largest + (1 - y.reshard) * parameters)
    )
    activations = (
        (y.live_layers - y.live_recompute_layers) * part["layer_saved_bytes"]
        + y.live_recompute_layers * part["layer_recomputed_saved_bytes"]
        + y.live_embedding * part["embedding_saved_bytes"]
        + y.live_head * part["head_saved_bytes"]
    )
    workspace = _workspace_bytes(parameters, largest, recipe, part)
    logits = y.has_head * part["logits_bytes"]
    buffers = PIPELINE_BUFFERS * part["boundary_bytes"] * y.pipelined
    optimizer = recipe.optimizer_temporary_bytes * parameters / (1 + y.shard_optimizer * (y.dp_shard - 1))
    passes = activations + buffers + Max(workspace, logits, evaluate=False)
    in_passes = at_least(passes, optimizer)
    in_loss = at_least(logits, workspace)
    causes: dict[str, Expr] = {
        **states,
        "activations": in_passes * activations,
        "gathered_parameters": gathered,
        "logits_and_loss": in_passes * in_loss * logits,
        "workspace": in_passes * (1 - in_loss) * workspace + (1 - in_passes) * optimizer,
        "pipeline_buffers": in_passes * buffers,
    }
    allocated = sum(states.values()) + gathered + Max(passes, optimizer, evaluate=False)
    return _with_overheads(causes, allocated, recipe, context_bytes)


def _state_bytes(parameters: Expr, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Model-state bytes by cause: 18 B a parameter unsharded, 6 + 12/r with ZeRO-1, 2 + 16/r, 18/r (Megatron recipe)."""

    def sharded(flag: Expr) -> Expr:
        return parameters * ((1 - flag) + flag / y.dp_shard)

    return {
        "weights": recipe.weight_bytes * sharded(y.shard_weights),
        "gradients": recipe.gradient_bytes * sharded(y.shard_gradients),
        "master_weights": recipe.master_bytes * sharded(y.shard_optimizer),
        "moments": recipe.moment_bytes * sharded(y.shard_optimizer),
    }


def _workspace_bytes(parameters: Expr, largest: Expr, recipe: FrameworkRecipe, part: dict[str, Expr]) -> Expr:
    """What the backward through one layer needs beside states and activations.

    A recomputed layer is restored whole; sharded gradients exist unsharded for a chunk (ZeRO-2) or a unit (ZeRO-3).
    """
    restored = at_least(y.recompute_layers, 1) * part["layer_restored_bytes"]
    chunk = parameters / y.vpp
    unsharded = y.shard_gradients * ((1 - y.shard_weights) * chunk + y.shard_weights * largest)
    return part["layer_workspace_bytes"] + restored + recipe.gradient_bytes * unsharded


def _with_overheads(
    causes: dict[str, Expr], allocated: Expr, recipe: FrameworkRecipe, context_bytes: float
) -> dict[str, Expr]:
    """Adds what no tensor shows: allocator fragmentation, communicator buffers, the device context."""
    fragmentation = recipe.fragmentation_fraction * allocated
    communicators = recipe.communicator_bytes * y.communicators
    return {
        **causes,
        "communicators": communicators,
        "context": context_bytes,
        "fragmentation": fragmentation,
        "allocated_bytes": allocated,
        "reserved_bytes": allocated + fragmentation,
        "device_bytes": allocated + fragmentation + communicators + context_bytes,
    }

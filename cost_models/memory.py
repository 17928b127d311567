"""Bytes by cause on one rank of a pipeline stage, at the peak of each phase of a step.

Model states: Rajbhandari et al. 2020 (ZeRO), with the recipe's bytes per parameter; activations: the saved tensors of
`layers`. Phases are the loss, the backward (whose first layer meets all activations in flight; no forward holds more)
and the optimizer step (states and temporaries, no activations). docs/cost_model.md says why each transient is there.
"""

from functools import reduce
from typing import Any

from cost_models import symbols as sym
from cost_models.allocator import stranded_bytes, with_overheads
from cost_models.attention import attention_scores, key_value_bytes
from cost_models.blocks import ACTIVATION_BYTES, ZERO, Block, residual_bytes, sequence_shard, tokens
from cost_models.layers import Chain, Unit
from cost_models.mlp import received
from cost_models.operators import at_least, ceiling, maximum, minimum
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = [
    "CAUSES",
    "boundary_bytes",
    "fractions",
    "micro_batch_bytes",
    "owned_parameters",
    "recomputed_saved_bytes",
    "saved_bytes",
    "shared_parameters",
    "stage_bytes",
    "stage_parameters",
    "unit_parameters",
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
    "offload_buffers",
    "pipeline_buffers",
    "communicators",
    "context",
    "fragmentation",
)

# Units of FSDP, and of what is offloaded, on the device at one time: the one in use and the one being prefetched.
# PyTorch's own planners (fsdp_ilp) count twice the largest as well.
BUFFERED_UNITS = 2
# Boundary tensors a rank holds: one received and one to be sent, in each direction.
PIPELINE_BUFFERS = 4
# What is kept of one logit from the loss to its backward: the fp32 softmax (Korthikanti et al., section 4.2.3).
KEPT_LOGIT_BYTES = 4
# Tokens of a slice that a context-parallel rank holds keys and values of.
_local_slice = sym.slice_len / sym.cp
# What is kept of it from there to a weight gradient that waits: the gradient of the logits, in bf16.
WAITING_LOGIT_BYTES = 2
# Which offload fraction moves which states.
OFFLOADED_STATES = {
    "weights": "weights",
    "gradients": "gradients",
    "master_weights": "optimizer",
    "moments": "optimizer",
}


def unit_parameters(unit: Unit) -> tuple[Expr, Expr]:
    """Parameters of a unit on one rank, elements: those sharded with the dense states, and those of routed experts."""
    dense = sum((operator.parameters for operator in unit.operators), start=ZERO)
    return dense, sum((operator.expert_parameters for operator in unit.operators), start=ZERO)


def shared_parameters(model: ModelSpec) -> Expr:
    """Parameters that embedding and head share, on one tensor-parallel rank."""
    return sym.padded_vocab * sym.hidden / sym.tp if model.tie_embeddings else ZERO


def embedding_is_here(sliced: bool) -> Expr:
    """Whether a rank that holds the head, or a share of it, holds the same rows of the embedding."""
    return sym.spread + (1 - sym.spread) * sym.has_embedding if sliced else sym.has_embedding


def stage_parameters(sliced: bool = False) -> tuple[Expr, Expr]:
    """Parameters of a stage on one rank, dense and of experts; tied embeddings count once where both ends are held."""
    dense, expert = (
        sum(count * sym.PARTS[f"{unit}_{kind}"] for unit, count in sym.HELD.items())
        for kind in ("parameters", "expert_parameters")
    )
    return dense - embedding_is_here(sliced) * sym.has_head * sym.PARTS["shared_parameters"], expert


def owned_parameters(dense: Expr, expert: Expr, flag: Expr) -> Expr:
    """Parameters whose states a rank owns: all of them, or with `flag` its shard; experts have a group of their own."""
    return dense * ((1 - flag) + flag / sym.dp_shard) + expert * ((1 - flag) + flag / sym.expert_shard)


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
    """Bytes that one slice of a micro-batch sends across a pipeline boundary, one direction, on one rank."""
    return residual_bytes / sequence_shard


def workspace_bytes(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """Bytes that the backward through one layer needs beside what the layer has kept.

    The gradient of the residual stream, and the most of what the MLP's three steps hold after freeing what they have
    used: the gathered output gradient and the activation's; the pre-activation's; the gathered input and its gradient.
    Unfused attention holds the gradient of its scores instead, all-gather context parallelism the keys and values of
    the whole sequence and their gradients.
    """
    matrices = 2 if model.gated_mlp else 1

    def of_mlp(rows: Expr, inner: Expr, gathered: Expr) -> Expr:
        widest = maximum(sym.hidden + maximum(inner, gathered), matrices * inner)
        return ACTIVATION_BYTES * rows * widest

    most = of_mlp(tokens, sym.ffn / sym.tp, sym.sequence_parallel * sym.hidden)
    if model.moe:
        experts = of_mlp(received, sym.expert_ffn / sym.etp, sym.hidden)
        most = maximum(most, experts) if any(not kind.moe for kind in model.layer_kinds) else experts
    if not recipe.flash_attention:
        most = maximum(most, ACTIVATION_BYTES * attention_scores)
    gathered = at_least(sym.cp / sym.cp_heads, 2) * (1 - sym.cp_ring) * 2 * key_value_bytes(model) / sym.cp_heads
    return boundary_bytes() + maximum(most, gathered)


def micro_batch_bytes(
    model: ModelSpec, parts: Chain, recipe: FrameworkRecipe, *, sliced: bool = False
) -> dict[str, Expr]:
    """Bytes of one slice of a micro-batch that depend on the degrees and the recompute set alone, by name."""
    costs: dict[str, Expr] = {}
    for name, unit in parts.units().items():
        own = saved_bytes(unit.own)
        costs[f"{name}_saved_bytes"] = own + sum((saved_bytes(block) for block in unit.layers), start=ZERO)
        recomputed = sum((recomputed_saved_bytes(block) for block in unit.layers), start=ZERO)
        recomputed += len(unit.layers) * _cached_bytes(model) if sliced else ZERO
        costs[f"{name}_recomputed_saved_bytes"] = own + recomputed
        waiting = (operator.gradient_bytes for block in unit.layers for operator in block)
        costs[f"{name}_gradient_bytes"] = sum(waiting, start=ZERO)
    return {
        **costs,
        **({"layer_kv_bytes": len(parts.layer.layers) * key_value_bytes(model, _local_slice)} if sliced else {}),
        "layer_workspace_bytes": workspace_bytes(model, recipe),
        "layer_restored_bytes": _restored_bytes(parts.layer),
        "logits_bytes": recipe.loss_bytes_per_logit * (1 + model.mtp_layers) * tokens * sym.padded_vocab / sym.tp,
        "boundary_bytes": boundary_bytes(),
        "largest_matrix": _largest_matrix(parts.layer),
    }


def _cached_bytes(model: ModelSpec) -> Expr:
    """Keys and values of a slice that a layer keeps for later slices where the recompute set frees them otherwise."""
    kept = 1 - sym.recompute_full
    if model.mla:
        kept *= 1 - sym.RECOMPUTE_FLAGS["mla_up_proj"]
    several = at_least(sym.seq_len, 2 * sym.slice_len)
    return several * (1 - kept) * key_value_bytes(model, _local_slice)


def _largest_matrix(unit: Unit) -> Expr:
    """Parameters of the largest dense operator in the layers of a unit."""
    return reduce(maximum, dict.fromkeys(operator.parameters for block in unit.layers for operator in block))


def _restored_bytes(unit: Unit) -> Expr:
    """What recomputing brings back of one layer: the most of any kind of layer in the unit."""
    restored = [saved_bytes(block) - recomputed_saved_bytes(block) for block in dict.fromkeys(unit.layers)]
    return reduce(maximum, restored)


def stage_bytes(
    recipe: FrameworkRecipe, context_bytes: float, *, offload: bool = False, sliced: bool = False
) -> dict[str, Expr]:
    """Bytes by cause of one rank of a stage at its peak; allocated, reserved and device totals; bytes on its host.

    The last five come and go within a step, whichever phase is its peak; the totals hold them where they add up.
    """
    part = sym.PARTS
    dense, expert = stage_parameters(sliced)
    away, states = fractions(offload), _state_bytes(dense, expert, recipe)
    gathered = recipe.parameter_gather_bytes * _gathered_parameters(dense, expert)
    saved, waiting = _activation_bytes(recipe), _waiting_logits_bytes(recipe) * (sym.has_head if sliced else 1)
    activations = (1 - away["activations"]) * saved
    buffers = _pipeline_buffers(recipe) * part["boundary_bytes"] * sym.pipelined
    buffers += sym.kv_gradient_layers * part["layer_kv_bytes"] if sliced else ZERO
    buffers += _accumulated_bytes(dense, expert, recipe)
    staged = _offload_buffers(recipe, away)
    libraries = recipe.library_bytes + recipe.placeholder_gradient_bytes * part["largest_matrix"]
    workspace, loss = _backward_bytes(recipe), sym.has_head * part["logits_bytes"]
    optimizer = _optimizer_bytes(owned_parameters(dense, expert, sym.shard_optimizer), recipe)
    transient = maximum(workspace, loss)
    passes = activations + waiting + buffers + staged + transient
    # Which phase is the peak; ties go to the passes and to the loss.
    in_passes, in_loss = at_least(passes, optimizer), at_least(loss, workspace)
    on_device = {cause: (1 - away[OFFLOADED_STATES[cause]]) * size for cause, size in states.items()}
    causes = {
        **on_device,
        "activations": in_passes * activations,
        "gathered_parameters": gathered,
        "logits_and_loss": in_passes * (waiting + in_loss * loss),
        "workspace": libraries + in_passes * (1 - in_loss) * workspace + (1 - in_passes) * optimizer,
        "offload_buffers": in_passes * staged,
        "pipeline_buffers": in_passes * buffers,
    }
    allocated = sum(on_device.values()) + gathered + libraries + maximum(passes, optimizer)
    on_host = sum(away[OFFLOADED_STATES[cause]] * size for cause, size in states.items())
    stranded = stranded_bytes(recipe, passes - transient, workspace, loss, optimizer)
    return {
        **with_overheads(causes, allocated, stranded, recipe, context_bytes),
        "host_bytes": on_host + away["activations"] * saved,
        "saved_bytes": activations,
        "waiting_bytes": waiting,
        "buffer_bytes": buffers + staged,
        "transient_bytes": transient,
        "optimizer_bytes": optimizer,
    }


def fractions(offload: bool) -> dict[str, Expr]:
    """What lives on the host, as fractions by name: symbols, or zero in expressions that know no offload."""
    names = ("weights", "gradients", "optimizer", "activations")
    return dict(zip(names, sym.OFFLOADS if offload else (ZERO,) * len(names), strict=True))


def _gathered_parameters(dense: Expr, expert: Expr) -> Expr:
    """Parameters of other ranks' shards that are held at one time: all of the stage, or the units at work."""
    return sym.shard_weights * (sym.reshard * BUFFERED_UNITS * _largest_unit() + (1 - sym.reshard) * (dense + expert))


def _state_bytes(dense: Expr, expert: Expr, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Model-state bytes by cause: 18 B a parameter unsharded, then 6 + 12/r, 2 + 16/r, 18/r (Megatron recipe)."""
    return {
        "weights": recipe.weight_bytes * owned_parameters(dense, expert, sym.shard_weights),
        "gradients": recipe.gradient_bytes * owned_parameters(dense, expert, sym.shard_gradients),
        "master_weights": recipe.master_bytes * owned_parameters(dense, expert, sym.shard_optimizer),
        "moments": recipe.moment_bytes * owned_parameters(dense, expert, sym.shard_optimizer),
    }


def _unit_total(unit: str) -> Expr:
    return sym.PARTS[f"{unit}_parameters"] + sym.PARTS[f"{unit}_expert_parameters"]


def _largest_unit() -> Expr:
    """Parameters of the largest unit that is gathered or reduced by itself: a layer, the embedding or the head."""
    layer, embedding, head = (_unit_total(unit) for unit in sym.HELD)
    return maximum(layer, maximum(sym.has_embedding * embedding, sym.has_head * head))


def _activation_bytes(recipe: FrameworkRecipe) -> Expr:
    """Activations in flight: layers, and what the two ends of the model keep.

    From its input gradient to its weight gradient a layer keeps the inputs of its products and the gradients of their
    outputs: as much as it kept before, nothing recomputed (Qi et al. 2024, "Zero Bubble", count 32 of 34 bytes). Where
    autograd keeps its graph for the weight gradients, it keeps everything, and those gradients beside it.
    """
    part = sym.PARTS
    saved = (sym.live_layers - sym.live_recompute_layers) * part["layer_saved_bytes"]
    saved += sym.live_recompute_layers * part["layer_recomputed_saved_bytes"]
    ends = (
        ("embedding", sym.live_embedding, sym.waiting_embedding),
        ("head", sym.live_head, sym.waiting_head),
    )
    for unit, live, waiting in ends:
        whole, recomputed = part[f"{unit}_saved_bytes"], part[f"{unit}_recomputed_saved_bytes"]
        saved += live * (1 - sym.recompute_ends) * whole
        saved += live * sym.recompute_ends * recomputed
        saved += waiting * sym.recompute_ends * (whole - recomputed)
    if recipe.split_keeps_graph:
        counts = zip(sym.HELD, (sym.waiting_layers, sym.waiting_embedding, sym.waiting_head), strict=True)
        saved += sum(waiting * part[f"{unit}_gradient_bytes"] for unit, waiting in counts)
    return saved


def _waiting_logits_bytes(recipe: FrameworkRecipe) -> Expr:
    """What the loss keeps of the micro-batches that wait for their backward (GPipe), beside the one at work.

    And of those that wait for weight gradients only.
    """
    if not recipe.loss_bytes_per_logit:
        return ZERO
    kept, waiting = (min(1, size / recipe.loss_bytes_per_logit) for size in (KEPT_LOGIT_BYTES, WAITING_LOGIT_BYTES))
    whole = kept * sym.PARTS["logits_bytes"] * maximum(sym.live_head - sym.waiting_head - 1, 0)
    return whole + waiting * sym.PARTS["logits_bytes"] * sym.waiting_head


def _backward_bytes(recipe: FrameworkRecipe) -> Expr:
    """What the backward through one layer needs beside states and activations.

    A recomputed layer is restored whole; sharded gradients exist unsharded for a chunk (ZeRO-2, without buckets) or
    a unit.
    """
    restored = at_least(sym.recompute_layers, 1) * sym.PARTS["layer_restored_bytes"]
    of_weights = _largest_unit() if recipe.reduces_in_buckets else _largest_chunk()
    unsharded = (1 - sym.shard_weights) * of_weights + sym.shard_weights * _largest_unit()
    return sym.PARTS["layer_workspace_bytes"] + restored + recipe.gradient_bytes * sym.shard_gradients * unsharded


def _pipeline_buffers(recipe: FrameworkRecipe) -> Expr:
    """Boundary tensors that a rank holds: those on their way, and what it handed on where that is kept."""
    if not recipe.keeps_stage_outputs:
        return PIPELINE_BUFFERS
    in_flight = sym.live_layers * sym.vpp / maximum(sym.layers, 1)
    return PIPELINE_BUFFERS // 2 + (1 - sym.has_head) * in_flight


def _optimizer_bytes(owned: Expr, recipe: FrameworkRecipe) -> Expr:
    """The most that the optimizer's part of a step takes beside states: its temporaries, or the copy for a norm."""
    stepped = owned
    if recipe.optimizer_group_elements:
        stepped -= sym.shard_weights * maximum(owned - recipe.optimizer_group_elements, 0)
    temporaries = recipe.optimizer_temporary_bytes * stepped
    if not recipe.norm_copy_bytes:
        return temporaries
    ends = (flag * _unit_total(unit) for unit, flag in sym.HELD.items() if unit != "layer")
    largest = maximum(sym.PARTS["largest_matrix"], maximum(*ends))
    if recipe.norm_of_shards:
        largest = minimum(owned, largest)
    return maximum(temporaries, recipe.norm_copy_bytes * largest)


def _accumulated_bytes(dense: Expr, expert: Expr, recipe: FrameworkRecipe) -> Expr:
    """Whole gradients of a stage that keeps its weights gathered, beyond the shard that comes of them.

    FSDP2 under a pipeline neither frees weights nor reduces gradients before the last micro-batch.
    """
    if recipe.reshards_in_pipeline:
        return ZERO
    beyond = dense + expert - owned_parameters(dense, expert, sym.shard_gradients)
    return recipe.gradient_bytes * sym.shard_weights * (1 - sym.reshard) * sym.pipelined * beyond


def _largest_chunk() -> Expr:
    """Parameters of a stage's largest chunk: layers as even as they go, and what ends of the model the stage holds."""
    fewer_layers = sym.layers - ceiling(sym.layers / sym.vpp)
    return sum(stage_parameters()) - fewer_layers * _unit_total("layer")


def _offload_buffers(recipe: FrameworkRecipe, away: dict[str, Expr]) -> Expr:
    """Offloaded states and activations on their way: two layers of each, the one in use and the next (Mist)."""
    dense, expert = sym.PARTS["layer_parameters"], sym.PARTS["layer_expert_parameters"]
    states = away["weights"] * recipe.weight_bytes * owned_parameters(dense, expert, sym.shard_weights)
    states += away["gradients"] * recipe.gradient_bytes * owned_parameters(dense, expert, sym.shard_gradients)
    kept = (1 - sym.recompute_ends) * sym.PARTS["layer_saved_bytes"]
    kept += sym.recompute_ends * sym.PARTS["layer_recomputed_saved_bytes"]
    return BUFFERED_UNITS * (states + away["activations"] * kept)

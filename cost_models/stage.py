"""The cost of one pipeline rank's option, as three expressions that share one set of names.

`micro_batch_costs`  depends on (tp, cp, sequence_parallel, micro-batch size, recompute set): dear, few distinct rows.
`exchange_costs`     depends on the state-sharding groups: dear, few distinct rows.
`stage_costs`        arithmetic on both and on the stage's counts and flags: cheap, millions of rows.

Seconds of a micro-batch are additive over chunks: the sum of a rank's chunks is the stage, exactly. That is what lets
the bounds, the cutting planes and the simulator speak of the same numbers.
"""

from typing import Any

from cost_models import memory
from cost_models import symbols as sym
from cost_models.layers import ZERO, Block, embedding, head, layer
from cost_models.operators import (
    all_gather_s,
    all_reduce_s,
    elementwise_s,
    exposed_s,
    launch_s,
    maximum,
    reduce_scatter_s,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["exchange_costs", "micro_batch_costs", "stage_costs"]

Expr = Any

GRADIENT_NORM_BYTES = 4  # one fp32 scalar is reduced over all ranks


def micro_batch_costs(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Seconds and bytes of one micro-batch in one layer, the embedding and the head, by name."""
    blocks = _blocks(model, recipe)
    costs: dict[str, Expr] = {}
    for unit, block in blocks.items():
        costs |= _unit_seconds(unit, block)
    costs["layer_recompute_s"] = _recompute_seconds(blocks["layer"])
    return costs | memory.micro_batch_bytes(model, blocks["layer"], blocks["embedding"], blocks["head"], recipe)


def exchange_costs(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Seconds of gathering parameters and reducing gradients of a layer, the embedding and the head; parameters too.

    `*_reduce_s` is the sharded form (reduce-scatter in the shard group, all-reduce over replicas), `*_all_reduce_s`
    the unsharded one. `tied_reduce_s` adds the two copies of a tied embedding's gradient.
    """
    costs: dict[str, Expr] = {}
    for unit, block in _blocks(model, recipe).items():
        parameters = memory.block_parameters(block)
        gradients = recipe.gradient_reduce_bytes * parameters
        replicas = all_reduce_s(gradients / sym.dp_shard, sym.dp_replicate, sym.replicate_stride)
        sharded = reduce_scatter_s(gradients, sym.dp_shard, sym.dp_stride)
        costs[f"{unit}_parameters"] = parameters
        costs[f"{unit}_reduce_s"] = sharded + replicas
        costs[f"{unit}_all_reduce_s"] = all_reduce_s(gradients, sym.dp_shard * sym.dp_replicate, sym.dp_stride)
        costs[f"{unit}_gather_s"] = all_gather_s(
            recipe.parameter_gather_bytes * parameters, sym.dp_shard, sym.dp_stride
        )
    costs["shared_parameters"] = memory.shared_parameters(model)
    costs["gradient_norm_reduce_s"] = all_reduce_s(GRADIENT_NORM_BYTES, sym.world, 1)
    costs["tied_reduce_s"] = ZERO
    if model.tie_embeddings:
        shared = recipe.gradient_reduce_bytes * memory.shared_parameters(model)
        # Two ranks that span the pipeline's whole block: neighbours at half of it span as much.
        costs["tied_reduce_s"] = all_reduce_s(shared, 2, sym.pp * sym.pp_stride / 2) * sym.pipelined
    return costs


def stage_costs(model: ModelSpec, recipe: FrameworkRecipe, context_bytes: float) -> dict[str, Expr]:
    """Seconds (design, section 3) and bytes by cause of one stage, or of one chunk of it, under one option.

    Outputs: forward_s, input_grad_s, weight_grad_s of one micro-batch; first_s, last_s, global_s of a step; the
    parts compute_s, tensor_parallel_s, recompute_s, exchange_s that make up one micro-batch; bytes by cause.
    """
    forward, input_grad, weight_grad, communication = (
        sum(count * sym.PARTS[f"{unit}_{name}"] for unit, count in sym.HELD.items())
        for name in ("forward_s", "input_grad_s", "weight_grad_s", "communication_s")
    )
    recompute = sym.recompute_layers * sym.PARTS["layer_recompute_s"]
    forward_exchange = _forward_exchange(model, recipe)
    backward_exchange = _backward_exchange(model, recipe)
    return {
        "forward_s": forward + forward_exchange,
        "input_grad_s": input_grad + recompute + backward_exchange,
        "weight_grad_s": weight_grad,
        "first_s": _first(model, recipe),
        "last_s": _last(model, recipe),
        "global_s": _global(model, recipe),
        "compute_s": forward + input_grad + weight_grad - communication,
        "tensor_parallel_s": communication,
        "recompute_s": recompute,
        "exchange_s": forward_exchange + backward_exchange,
        **memory.stage_bytes(recipe, context_bytes),
    }


def _blocks(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Block]:
    return {"layer": layer(model, recipe), "embedding": embedding(model, recipe), "head": head(model, recipe)}


def _unit_seconds(unit: str, block: Block) -> dict[str, Expr]:
    """Forward, input-grad and weight-grad seconds of a block, and the tensor-parallel collectives within.

    A pass takes at least what its launches take the host. The backward is one pass: the host runs ahead of the device
    through its long kernels, and where it falls behind all the same, the input gradient waits.
    """
    forward, input_grad, weight_grad = (
        sum(getattr(operator, name) for operator in block) for name in ("forward_s", "input_grad_s", "weight_grad_s")
    )
    kernels = sum(operator.kernels for operator in block)
    products = sum(1 for operator in block if operator.weight_grad_s != 0)
    waiting = maximum(launch_s(kernels + products) - input_grad - weight_grad, 0)
    communication = sum(operator.forward_s + operator.input_grad_s for operator in block if operator.communication)
    return {
        f"{unit}_forward_s": maximum(forward, launch_s(kernels)),
        f"{unit}_input_grad_s": input_grad + waiting,
        f"{unit}_weight_grad_s": weight_grad,
        f"{unit}_communication_s": communication,
    }


def _recompute_seconds(block: Block) -> Expr:
    """Seconds of running again, in the backward of one layer, what the recompute set frees."""
    seconds: Expr = ZERO
    kernels: Expr = ZERO
    for operator in block:
        kept = 1 - sym.recompute_full
        for module in operator.modules:
            kept *= 1 - sym.RECOMPUTE_FLAGS[module]
        seconds += (1 - kept) * operator.forward_s
        kernels += (1 - kept) * operator.kernels
    return maximum(seconds, launch_s(kernels))


def _exchanged(model: ModelSpec) -> dict[str, Expr]:
    """What a stage holds of each unit when states are exchanged: a tied matrix, held at both ends, once.

    It goes with the embedding, where its gradient is complete; the final norm that is left of the head costs nothing
    beside it.
    """
    once = 1 - sym.has_embedding if model.tie_embeddings else 1
    return {**sym.HELD, "head": sym.has_head * once}


def _beside(overlaps: bool, compute: Expr, communication: Expr) -> Expr:
    """What communication adds to compute: what the compute cannot hide, or all of it where the recipe waits."""
    return exposed_s(compute, communication) if overlaps else communication


def _forward_exchange(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """What gathering parameters adds to the forward of one micro-batch (FSDP that reshards)."""
    overlaps = recipe.overlap_parameter_gather
    gathers = sym.shard_weights * sym.reshard
    return sum(
        count * _beside(overlaps, sym.PARTS[f"{unit}_forward_s"], gathers * sym.PARTS[f"{unit}_gather_s"])
        for unit, count in _exchanged(model).items()
    )


def _backward_exchange(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """What exchanging states adds to the backward of one micro-batch.

    With sharded gradients each micro-batch reduces its own; with FSDP that reshards each gathers parameters again.
    """

    def of_unit(unit: str, recompute: Expr) -> Expr:
        gather = sym.shard_weights * sym.reshard * sym.PARTS[f"{unit}_gather_s"]
        reduce = sym.shard_gradients * sym.PARTS[f"{unit}_reduce_s"]
        compute = _backward(unit) + recompute
        if recipe.overlap_gradient_reduce and recipe.overlap_parameter_gather:
            return exposed_s(compute, gather + reduce)
        reduced = _beside(recipe.overlap_gradient_reduce, compute, reduce)
        return reduced + _beside(recipe.overlap_parameter_gather, compute, gather)

    exchanged = _exchanged(model)
    plain = sym.layers - sym.recompute_layers
    added = plain * of_unit("layer", 0) + sym.recompute_layers * of_unit("layer", sym.PARTS["layer_recompute_s"])
    return added + exchanged["embedding"] * of_unit("embedding", 0) + exchanged["head"] * of_unit("head", 0)


def _backward(unit: str) -> Expr:
    return sym.PARTS[f"{unit}_input_grad_s"] + sym.PARTS[f"{unit}_weight_grad_s"]


def _first(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """Seconds before a stage's first forward, or added to it, by gathering parameters.

    Nothing runs beside the first unit's gather; each later unit is gathered beside the unit before it. Optimizer
    sharding gathers here when the recipe overlaps it, else at the end of the step (`_global`). With resharding every
    micro-batch has paid for its own gathers, as if the first unit, too, had hidden beside something.
    """
    overlaps = recipe.overlap_parameter_gather
    gather = {unit: sym.PARTS[f"{unit}_gather_s"] for unit in sym.HELD}
    lookup_s, layer_s = sym.PARTS["embedding_forward_s"], sym.PARTS["layer_forward_s"]
    once = sym.has_embedding * gather["embedding"] + _beside(overlaps, sym.has_embedding * lookup_s, gather["layer"])
    once += maximum(sym.layers - 1, 0) * _beside(overlaps, layer_s, gather["layer"])
    once += _exchanged(model)["head"] * _beside(overlaps, layer_s, gather["head"])
    hidden = sym.has_embedding * (gather["embedding"] - _beside(overlaps, lookup_s, gather["embedding"]))
    hidden += (1 - sym.has_embedding) * (gather["layer"] - _beside(overlaps, layer_s, gather["layer"]))
    gathers = sym.shard_optimizer if overlaps else sym.shard_weights
    reshards = sym.shard_weights * sym.reshard
    return (gathers - reshards) * once + reshards * hidden


def _last(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """Seconds after a stage's last backward, or added to it, by reducing gradients: the mirror image of `_first`."""
    exchanged, overlaps, sharded = _exchanged(model), recipe.overlap_gradient_reduce, sym.shard_optimizer
    scattered = {unit: sym.PARTS[f"{unit}_reduce_s"] for unit in sym.HELD}
    reduce = {unit: sharded * scattered[unit] + (1 - sharded) * sym.PARTS[f"{unit}_all_reduce_s"] for unit in sym.HELD}
    scatter_s, layer_s = _backward("embedding"), _backward("layer")
    once = sym.has_embedding * reduce["embedding"] + _beside(overlaps, sym.has_embedding * scatter_s, reduce["layer"])
    once += maximum(sym.layers - 1, 0) * _beside(overlaps, layer_s, reduce["layer"])
    once += exchanged["head"] * _beside(overlaps, layer_s, reduce["head"])
    hidden = sym.has_embedding * (scattered["embedding"] - _beside(overlaps, scatter_s, scattered["embedding"]))
    hidden += (1 - sym.has_embedding) * (scattered["layer"] - _beside(overlaps, layer_s, scattered["layer"]))
    return (1 - sym.shard_gradients) * once + sym.shard_gradients * hidden


def _global(model: ModelSpec, recipe: FrameworkRecipe) -> Expr:
    """Seconds of gradient norm, optimizer step, unhidden parameter gather and tied-embedding reduction."""
    owned = memory.stage_parameters() / (1 + sym.shard_optimizer * (sym.dp_shard - 1))
    # Gradients are read; masters and moments are read and written; weights are written, and read where no master is.
    moved = recipe.gradient_bytes + 2 * (recipe.master_bytes + recipe.moment_bytes)
    moved += recipe.weight_bytes * (1 if recipe.master_bytes else 2)
    seconds = elementwise_s(recipe.gradient_bytes * owned) + elementwise_s(moved * owned)
    seconds += sym.PARTS["gradient_norm_reduce_s"] + sym.PARTS["tied_reduce_s"]
    if not recipe.overlap_parameter_gather:
        gathered = sum(count * sym.PARTS[f"{unit}_gather_s"] for unit, count in _exchanged(model).items())
        seconds += sym.shard_optimizer * (1 - sym.shard_weights) * gathered
    return seconds

"""The cost of one pipeline rank's option, as three expressions that share one set of names.

`micro_batch_costs`  depends on (tp, cp, sequence_parallel, micro-batch size, recompute set): dear, few distinct rows.
`exchange_costs`     depends on the state-sharding groups: dear, few distinct rows.
`stage_costs`        arithmetic on both and on the stage's counts and flags: cheap, millions of rows.

Seconds are additive over chunks: the sum of a rank's chunks is the stage, exactly. That is what lets the bounds, the
cutting planes and the simulator speak of the same numbers.
"""

from typing import Any

from sympy import Max, Symbol

from cost_models import memory
from cost_models import symbols as y
from cost_models.layers import Block, embedding, head, layer
from cost_models.operators import (
    all_gather_s,
    all_reduce_s,
    elementwise_s,
    launch_s,
    overlapped_s,
    reduce_scatter_s,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["exchange_costs", "micro_batch_costs", "stage_costs"]

Expr = Any

UNITS = ("layer", "embedding", "head")
GRADIENT_NORM_BYTES = 4  # one fp32 scalar is reduced over all ranks


def micro_batch_costs(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Seconds and bytes of one micro-batch in one layer, the embedding and the head, by name."""
    blocks = _blocks(model, recipe)
    costs: dict[str, Expr] = {}
    for unit, block in blocks.items():
        costs |= _unit_seconds(unit, block)
    costs["layer_recompute_s"] = _recompute_seconds(blocks["layer"])
    costs |= memory.micro_batch_bytes(model, blocks["layer"], blocks["embedding"], blocks["head"], recipe)
    return costs


def exchange_costs(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Seconds of gathering parameters and reducing gradients of a layer, the embedding and the head; parameters too.

    `*_reduce_s` is the sharded form (reduce-scatter in the shard group, all-reduce over replicas), `*_all_reduce_s`
    the unsharded one. `tied_reduce_s` adds the two copies of a tied embedding's gradient.
    """
    costs: dict[str, Expr] = {}
    for unit, block in _blocks(model, recipe).items():
        parameters = memory.block_parameters(block)
        gradients = recipe.gradient_reduce_bytes * parameters
        replicas = all_reduce_s(gradients / y.dp_shard, y.dp_replicate, y.replicate_stride)
        sharded = reduce_scatter_s(gradients, y.dp_shard, y.dp_stride)
        costs[f"{unit}_parameters"] = parameters
        costs[f"{unit}_reduce_s"] = sharded + replicas
        costs[f"{unit}_all_reduce_s"] = all_reduce_s(gradients, y.dp_shard * y.dp_replicate, y.dp_stride)
        costs[f"{unit}_gather_s"] = all_gather_s(recipe.parameter_gather_bytes * parameters, y.dp_shard, y.dp_stride)
    costs["shared_parameters"] = _shared_parameters(model)
    costs["gradient_norm_reduce_s"] = all_reduce_s(GRADIENT_NORM_BYTES, y.world, 1)
    costs["tied_reduce_s"] = 0
    if model.tie_embeddings:
        shared = recipe.gradient_reduce_bytes * _shared_parameters(model)
        costs["tied_reduce_s"] = all_reduce_s(shared, 2, y.tied_stride) * y.pipelined
    return costs


def stage_costs(model: ModelSpec, recipe: FrameworkRecipe, context_bytes: float) -> dict[str, Expr]:
    """Seconds (design, section 3) and bytes by cause of one stage, or of one chunk of it, under one option.

    Outputs: forward_s, input_grad_s, weight_grad_s of one micro-batch; first_s, last_s, global_s of a step; the
    parts compute_s, tensor_parallel_s, recompute_s, exchange_s that make up one micro-batch; bytes by cause.
    """
    part = _parts(model, recipe)
    holds = {"layer": y.layers, "embedding": y.has_embedding, "head": y.has_head}
    forward, forward_exchange = _forward(part, holds)
    input_grad, weight_grad, backward_exchange = _backward(part, holds, recipe)
    recompute = y.recompute_layers * part["layer_recompute_s"]
    communication = sum(holds[unit] * part[f"{unit}_communication_s"] for unit in UNITS)
    parameters = {unit: part[f"{unit}_parameters"] for unit in UNITS}
    shared = part["shared_parameters"]
    return {
        "forward_s": forward + forward_exchange,
        "input_grad_s": input_grad + recompute + backward_exchange,
        "weight_grad_s": weight_grad,
        "first_s": _first(part, recipe),
        "last_s": _last(part, recipe),
        "global_s": _global(part, parameters, shared, recipe),
        "compute_s": forward + input_grad + weight_grad - communication,
        "tensor_parallel_s": communication,
        "recompute_s": recompute,
        "exchange_s": forward_exchange + backward_exchange,
        **memory.stage_bytes(*parameters.values(), shared, recipe, context_bytes, part),
    }


def _blocks(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Block]:
    return {"layer": layer(model, recipe), "embedding": embedding(model, recipe), "head": head(model, recipe)}


def _shared_parameters(model: ModelSpec) -> Expr:
    """Parameters that embedding and head share, on one tensor-parallel rank."""
    return y.padded_vocab * y.hidden / y.tp if model.tie_embeddings else 0


def _parts(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Symbol]:
    """The outputs of the two dear expressions, as symbols of the cheap one."""
    names = [*micro_batch_costs(model, recipe), *exchange_costs(model, recipe)]
    return {name: Symbol(name, nonnegative=True) for name in names}


def _unit_seconds(unit: str, block: Block) -> dict[str, Expr]:
    """Forward, input-grad and weight-grad seconds of a block; each is at least what its launches take the host."""
    kernels = sum(operator.kernels for operator in block)
    products = sum(1 for operator in block if operator.weight_grad_s != 0)
    communication = sum(operator.forward_s + operator.input_grad_s for operator in block if operator.communication)
    seconds = {
        "forward_s": (sum(operator.forward_s for operator in block), kernels),
        "input_grad_s": (sum(operator.input_grad_s for operator in block), kernels),
        "weight_grad_s": (sum(operator.weight_grad_s for operator in block), products),
    }
    bounded = {
        f"{unit}_{name}": Max(device, launch_s(count), evaluate=False) for name, (device, count) in seconds.items()
    }
    return {**bounded, f"{unit}_communication_s": communication}


def _recompute_seconds(block: Block) -> Expr:
    """Seconds of running again, in the backward of one layer, what the recompute set frees."""
    seconds = 0
    for operator in block:
        kept = 1 - y.recompute_full
        for module in operator.modules:
            kept *= 1 - y.RECOMPUTE_FLAGS[module]
        seconds += (1 - kept) * operator.forward_s
    return seconds


def _hidden(compute: Expr, communication: Expr) -> Expr:
    """What communication adds to the compute beside which it runs."""
    return overlapped_s(compute, communication) - compute


def _forward(part: dict[str, Symbol], holds: dict[str, Expr]) -> tuple[Expr, Expr]:
    """Seconds of the forward of one micro-batch, and what gathering parameters for it adds (FSDP that reshards)."""
    every = y.shard_weights * y.reshard
    forward = sum(holds[unit] * part[f"{unit}_forward_s"] for unit in UNITS)
    exchange = sum(holds[unit] * _hidden(part[f"{unit}_forward_s"], every * part[f"{unit}_gather_s"]) for unit in UNITS)
    return forward, exchange


def _backward(part: dict[str, Symbol], holds: dict[str, Expr], recipe: FrameworkRecipe) -> tuple[Expr, Expr, Expr]:
    """Input-grad and weight-grad seconds of one micro-batch, and what exchanging states beside them adds.

    With sharded gradients each micro-batch reduces its own; with FSDP that reshards each gathers parameters again.
    """
    input_grad = sum(holds[unit] * part[f"{unit}_input_grad_s"] for unit in UNITS)
    weight_grad = sum(holds[unit] * part[f"{unit}_weight_grad_s"] for unit in UNITS)

    def exchange(unit: str, recompute: Expr) -> Expr:
        gather = y.shard_weights * y.reshard * part[f"{unit}_gather_s"]
        reduce = y.shard_gradients * part[f"{unit}_reduce_s"]
        compute = part[f"{unit}_input_grad_s"] + part[f"{unit}_weight_grad_s"] + recompute
        if recipe.overlap_gradient_reduce:
            return _hidden(compute, gather + reduce)
        return _hidden(compute, gather) + reduce

    plain = y.layers - y.recompute_layers
    added = plain * exchange("layer", 0) + y.recompute_layers * exchange("layer", part["layer_recompute_s"])
    added += y.has_embedding * exchange("embedding", 0) + y.has_head * exchange("head", 0)
    return input_grad, weight_grad, added


def _first(part: dict[str, Symbol], recipe: FrameworkRecipe) -> Expr:
    """Seconds before a stage's first forward: the first gathered unit, and what later ones add to the first pass."""
    gathers = y.shard_optimizer if recipe.overlap_parameter_gather else y.shard_weights
    once = gathers * (1 - y.shard_weights * y.reshard)
    opening = Max(part["layer_gather_s"], y.has_embedding * part["embedding_gather_s"], evaluate=False)
    later = Max(y.layers - 1 + y.has_embedding, 0, evaluate=False) * _hidden(part["layer_forward_s"], part["layer_gather_s"])
    later += y.has_head * _hidden(part["head_forward_s"], part["head_gather_s"])
    return gathers * opening + once * later


def _last(part: dict[str, Symbol], recipe: FrameworkRecipe) -> Expr:
    """Seconds after a stage's last backward: the last reduced unit, and what earlier ones add to the last pass."""

    def reduce(unit: str) -> Expr:
        sharded, whole = part[f"{unit}_reduce_s"], part[f"{unit}_all_reduce_s"]
        return y.shard_optimizer * sharded + (1 - y.shard_optimizer) * whole

    once = 1 - y.shard_gradients
    if not recipe.overlap_gradient_reduce:
        return once * (y.layers * reduce("layer") + y.has_embedding * reduce("embedding") + y.has_head * reduce("head"))

    def backward(unit: str) -> Expr:
        return part[f"{unit}_input_grad_s"] + part[f"{unit}_weight_grad_s"]

    closing = y.has_embedding * reduce("embedding") + (1 - y.has_embedding) * reduce("layer")
    earlier = Max(y.layers - 1 + y.has_embedding, 0, evaluate=False) * _hidden(backward("layer"), reduce("layer"))
    earlier += y.has_head * _hidden(backward("head"), reduce("head"))
    return closing + once * earlier


def _global(part: dict[str, Symbol], parameters: dict[str, Symbol], shared: Expr, recipe: FrameworkRecipe) -> Expr:
    """Seconds of gradient norm, optimizer step, unhidden parameter gather and tied-embedding reduction."""
    owned = y.layers * parameters["layer"] + y.has_embedding * parameters["embedding"] + y.has_head * parameters["head"]
    owned -= y.has_embedding * y.has_head * shared
    owned = owned / (1 + y.shard_optimizer * (y.dp_shard - 1))
    read_and_written = recipe.gradient_bytes + 2 * recipe.master_bytes + 2 * recipe.moment_bytes + recipe.weight_bytes
    seconds = elementwise_s(recipe.gradient_bytes * owned) + elementwise_s(read_and_written * owned)
    seconds += part["gradient_norm_reduce_s"] + part["tied_reduce_s"]
    if not recipe.overlap_parameter_gather:
        gathered = (
            y.layers * part["layer_gather_s"]
            + y.has_embedding * part["embedding_gather_s"]
            + y.has_head * part["head_gather_s"]
        )
        seconds += y.shard_optimizer * (1 - y.shard_weights) * gathered
    return seconds

"""What moving model states costs a step: gathers and reductions over data-parallel ranks, copies to and from the host.

Two groups shard states: the data-parallel one for dense parameters, and the replicas of each expert for experts.
Offloaded fractions move over the host link in the phases of Mist's table (EuroSys '25): weights come in for every
pass, gradients come in and go out with every backward, activations go out in the forward and come back in the
backward. Offloaded optimizer states stay on the host, whose processors step them.
"""

from typing import Any

from cost_models import symbols as sym
from cost_models.blocks import ACTIVATION_BYTES, ZERO
from cost_models.layers import chain
from cost_models.memory import (
    embedding_is_here,
    fractions,
    owned_parameters,
    shared_parameters,
    stage_parameters,
    unit_parameters,
)
from cost_models.operators import (
    ELEMENTWISE,
    all_gather_s,
    all_reduce_s,
    elementwise_s,
    exposed_beside_copies_s,
    exposed_s,
    from_host_s,
    host_step_s,
    maximum,
    reduce_scatter_s,
    to_host_s,
)
from cost_models.specs.kernel_tables import ElementwiseKind
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = [
    "accumulation_s",
    "backward_s",
    "exchange_costs",
    "first_s",
    "forward_s",
    "global_s",
    "last_s",
    "moved_for_a_parameter",
]

Expr = Any

FP32_BYTES = 4
GRADIENT_NORM_BYTES = 4  # one fp32 scalar is reduced over all ranks


def exchange_costs(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Parameters of each unit on one rank, and the seconds of gathering them and of reducing their gradients.

    `*_reduce_s` is the sharded form (reduce-scatter in the shard group, all-reduce over replicas), `*_all_reduce_s`
    the unsharded one. `*_accumulation_s` adds up what products leave apart, `tied_reduce_s` the two copies of a tied
    embedding's gradient.
    """
    costs: dict[str, Expr] = {}
    for name, unit in chain(model, recipe).units().items():
        dense, expert = unit_parameters(unit)
        gradients, of_experts = recipe.gradient_reduce_bytes * dense, recipe.gradient_reduce_bytes * expert
        weights, expert_weights = recipe.parameter_gather_bytes * dense, recipe.parameter_gather_bytes * expert
        replicas = all_reduce_s(gradients / sym.dp_shard, sym.dp_replicate, sym.replicate_stride)
        sharded = reduce_scatter_s(gradients, sym.dp_shard, sym.dp_stride) + replicas
        whole = all_reduce_s(gradients, sym.dp_shard * sym.dp_replicate, sym.dp_stride)
        gathered = all_gather_s(weights, sym.dp_shard, sym.dp_stride)
        if expert != 0:
            sharded += reduce_scatter_s(of_experts, sym.expert_shard, sym.expert_stride)
            whole += all_reduce_s(of_experts, sym.expert_shard, sym.expert_stride)
            gathered += all_gather_s(expert_weights, sym.expert_shard, sym.expert_stride)
        costs |= {f"{name}_parameters": dense, f"{name}_expert_parameters": expert}
        costs |= _state_work(name, recipe, dense + expert)
        costs |= {f"{name}_reduce_s": sharded, f"{name}_all_reduce_s": whole, f"{name}_gather_s": gathered}
    costs["shared_parameters"] = shared_parameters(model)
    costs["gradient_norm_reduce_s"] = all_reduce_s(GRADIENT_NORM_BYTES, sym.world, 1)
    costs["tied_reduce_s"] = ZERO
    if model.tie_embeddings:
        shared = recipe.gradient_reduce_bytes * shared_parameters(model)
        # Two ranks that span the pipeline's whole block: neighbours at half of it span as much.
        costs["tied_reduce_s"] = all_reduce_s(shared, 2, sym.pp * sym.pp_stride / 2) * sym.ends_apart
    return costs


def moved_for_a_parameter(recipe: FrameworkRecipe) -> dict[ElementwiseKind, float]:
    """Bytes that each kind of memory-bound work on states moves for one parameter, each time; 0 where there is none.

    Of the optimizer's step gradients are read; masters and moments are read and written; weights are written, and read
    where no master is. Of accumulation the product's gradient is read, the sum, fp32 at most, is read and written.
    """
    stepped = recipe.gradient_bytes + 2 * (recipe.master_bytes + recipe.moment_bytes)
    added = ACTIVATION_BYTES + 2 * min(recipe.gradient_bytes, FP32_BYTES)
    return {
        "parameter_copy": recipe.parameter_copy_bytes,
        "gradient_copy": recipe.gradient_copy_bytes,
        "gradient_accumulation": 0 if recipe.fused_gradient_accumulation else added,
        "optimizer_step": stepped + recipe.weight_bytes * (1 if recipe.master_bytes else 2),
    }


def _state_work(unit: str, recipe: FrameworkRecipe, parameters: Expr) -> dict[str, Expr]:
    """Seconds of adding up the gradients of a unit and of laying out its states, by name, where a recipe does."""
    moved = moved_for_a_parameter(recipe)
    names: dict[str, ElementwiseKind] = {
        "accumulation": "gradient_accumulation",
        "parameter_copy": "parameter_copy",
        "gradient_copy": "gradient_copy",
    }
    return {
        f"{unit}_{name}_s": ELEMENTWISE[kind](moved[kind] * parameters) for name, kind in names.items() if moved[kind]
    }


def _laid_out(unit: str, size: float, of: str) -> Expr:
    """Seconds of laying out the weights or gradients of a unit once, nothing where the recipe does not."""
    return sym.PARTS[f"{unit}_{of}_copy_s"] if size else ZERO


def forward_s(model: ModelSpec, recipe: FrameworkRecipe, *, offload: bool = False, sliced: bool = False) -> Expr:
    """What moving states and activations beside it adds to the forward of one micro-batch, seconds.

    FSDP that reshards gathers parameters; offloaded weights come in; offloaded activations go out: all for each of the
    passes that a micro-batch takes.
    """
    away, passes = fractions(offload), passes_of(sliced)
    gathers = sym.shard_weights * sym.reshard

    def of_unit(unit: str, recomputed: bool) -> Expr:
        share = _share(model, unit, sliced)
        copied = passes * gathers * _laid_out(unit, recipe.parameter_copy_bytes, "parameter")
        return copied + _beside(
            recipe.overlap_parameter_gather,
            sym.PARTS[f"{unit}_forward_s"],
            passes * gathers * share * sym.PARTS[f"{unit}_gather_s"],
            passes * _weights_in(unit, recipe, share * away["weights"]),
            passes * _copied(to_host_s, away["activations"] * _kept(unit, recomputed)),
        )

    return _over_units(of_unit)


def backward_s(model: ModelSpec, recipe: FrameworkRecipe, *, offload: bool = False, sliced: bool = False) -> Expr:
    """What moving states and activations beside it adds to the backward of one micro-batch, seconds.

    With sharded gradients each pass of it reduces its own; with FSDP that reshards each gathers parameters again.
    """
    away, passes = fractions(offload), passes_of(sliced)

    def of_unit(unit: str, recomputed: bool) -> Expr:
        share = _share(model, unit, sliced)
        gather = passes * sym.shard_weights * sym.reshard * share * sym.PARTS[f"{unit}_gather_s"]
        reduce = passes * _reduced_at_once(recipe) * share * sym.PARTS[f"{unit}_reduce_s"]
        compute = _backward(unit) + (sym.PARTS[f"{unit}_recompute_s"] if recomputed else 0)
        gradients = share * away["gradients"] * _owned_bytes(unit, recipe.gradient_bytes, sym.shard_gradients)
        copied_in = _weights_in(unit, recipe, share * away["weights"]) + _copied(from_host_s, gradients)
        copied_in += _copied(from_host_s, away["activations"] * _kept(unit, recomputed))
        copied_in, copied_out = passes * copied_in, passes * _copied(to_host_s, gradients)
        hidden = (reduce if recipe.overlap_gradient_reduce else 0) + (gather if recipe.overlap_parameter_gather else 0)
        waited = (0 if recipe.overlap_gradient_reduce else reduce) + (0 if recipe.overlap_parameter_gather else gather)
        waited += passes * sym.shard_weights * sym.reshard * _laid_out(unit, recipe.parameter_copy_bytes, "parameter")
        waited += passes * _reduced_at_once(recipe) * _laid_out(unit, recipe.gradient_copy_bytes, "gradient")
        return waited + _beside(True, compute, hidden, copied_in, copied_out)

    return _over_units(of_unit)


def first_s(model: ModelSpec, recipe: FrameworkRecipe, *, offload: bool = False, sliced: bool = False) -> Expr:
    """Seconds before a stage's first forward, or added to it, by gathering parameters.

    Nothing runs beside the first unit's gather (or its weights' copy); each later unit is gathered beside the unit
    before it. Optimizer sharding gathers here when the recipe overlaps it, else at the end of the step (`global_s`).
    With resharding every micro-batch has paid for its own gathers, as if the first unit, too, had hidden beside
    something.
    """
    overlaps = recipe.overlap_parameter_gather
    gather = {unit: _share(model, unit, sliced) * sym.PARTS[f"{unit}_gather_s"] for unit in sym.HELD}
    lookup_s, layer_s = sym.PARTS["embedding_forward_s"], sym.PARTS["layer_forward_s"]
    once = sym.has_embedding * gather["embedding"] + _beside(overlaps, sym.has_embedding * lookup_s, gather["layer"])
    once += maximum(sym.layers - 1, 0) * _beside(overlaps, layer_s, gather["layer"])
    once += sym.has_head * _beside(overlaps, layer_s, gather["head"])
    hidden = sym.has_embedding * (gather["embedding"] - _beside(overlaps, lookup_s, gather["embedding"]))
    hidden += (1 - sym.has_embedding) * (gather["layer"] - _beside(overlaps, layer_s, gather["layer"]))
    gathers = sym.shard_optimizer if overlaps else sym.shard_weights
    reshards = sym.shard_weights * sym.reshard
    copied = sum(count * _laid_out(unit, recipe.parameter_copy_bytes, "parameter") for unit, count in sym.HELD.items())
    once_copied = (1 - reshards) * copied
    return (
        once_copied
        + (gathers - reshards) * once
        + reshards * hidden
        + _weights_in("layer", recipe, fractions(offload)["weights"])
    )


def last_s(model: ModelSpec, recipe: FrameworkRecipe, *, sliced: bool = False) -> Expr:
    """Seconds after a stage's last backward, or added to it, by reducing gradients: the mirror image of `first_s`."""
    overlaps, sharded = recipe.overlap_gradient_reduce, sym.shard_optimizer
    scattered, whole = (
        {unit: _share(model, unit, sliced) * sym.PARTS[f"{unit}_{cost}"] for unit in sym.HELD}
        for cost in ("reduce_s", "all_reduce_s")
    )
    reduce = {unit: sharded * scattered[unit] + (1 - sharded) * whole[unit] for unit in sym.HELD}
    scatter_s, layer_s = _backward("embedding"), _backward("layer")
    once = sym.has_embedding * reduce["embedding"] + _beside(overlaps, sym.has_embedding * scatter_s, reduce["layer"])
    once += maximum(sym.layers - 1, 0) * _beside(overlaps, layer_s, reduce["layer"])
    once += sym.has_head * _beside(overlaps, layer_s, reduce["head"])
    hidden = sym.has_embedding * (scattered["embedding"] - _beside(overlaps, scatter_s, scattered["embedding"]))
    hidden += (1 - sym.has_embedding) * (scattered["layer"] - _beside(overlaps, layer_s, scattered["layer"]))
    at_once = _reduced_at_once(recipe)
    once += sum(count * _laid_out(unit, recipe.gradient_copy_bytes, "gradient") for unit, count in sym.HELD.items())
    return (1 - at_once) * once + at_once * hidden


def accumulation_s(recipe: FrameworkRecipe) -> Expr:
    """What adding up the gradients of micro-batches adds to the weight gradients of one, where products do not do it.

    A kernel of its own reads what the product wrote, and reads and writes the sum. Gradients that every micro-batch
    reduces are not added up before.
    """
    if recipe.fused_gradient_accumulation:
        return ZERO
    added = sum(count * sym.PARTS[f"{unit}_accumulation_s"] for unit, count in sym.HELD.items())
    return (1 - _reduced_at_once(recipe)) * added


def _reduced_at_once(recipe: FrameworkRecipe) -> Expr:
    """Whether every micro-batch reduces its own gradients: sharded ones, unless the recipe waits for the last."""
    return sym.shard_gradients if recipe.reduces_each_micro_batch else ZERO


def global_s(model: ModelSpec, recipe: FrameworkRecipe, *, offload: bool = False, sliced: bool = False) -> Expr:
    """Seconds of gradient norm, optimizer step, unhidden parameter gather and tied-embedding reduction.

    Of offloaded optimizer states the gradients go out, the host steps, and the new weights come back.
    """
    owned = owned_parameters(*stage_parameters(sliced), sym.shard_optimizer)
    moved = moved_for_a_parameter(recipe)["optimizer_step"]
    on_host = fractions(offload)["optimizer"] * owned
    seconds = elementwise_s(recipe.gradient_bytes * owned) + ELEMENTWISE["optimizer_step"](moved * (owned - on_host))
    seconds += _copied(to_host_s, recipe.gradient_bytes * on_host) + _copied(host_step_s, moved * on_host)
    seconds += _copied(from_host_s, recipe.weight_bytes * on_host)
    seconds += sym.PARTS["gradient_norm_reduce_s"] + sym.PARTS["tied_reduce_s"]
    if not recipe.overlap_parameter_gather:
        gathered = sum(
            count * _share(model, unit, sliced) * sym.PARTS[f"{unit}_gather_s"] for unit, count in sym.HELD.items()
        )
        seconds += sym.shard_optimizer * (1 - sym.shard_weights) * gathered
    return seconds


def _share(model: ModelSpec, unit: str, sliced: bool) -> Expr:
    """The part of a unit's states that is exchanged with it: a tied matrix, held at both ends, once.

    It goes with the embedding, where its gradient is complete; the head keeps its norm and its layers.
    """
    if unit != "head" or not model.tie_embeddings:
        return 1
    total = sym.PARTS["head_parameters"] + sym.PARTS["head_expert_parameters"]
    return 1 - embedding_is_here(sliced) * sym.PARTS["shared_parameters"] / total


def passes_of(sliced: bool) -> Expr:
    """Passes of a micro-batch through a layer: its slices, or one in expressions that know none."""
    return sym.slices if sliced else 1


def _over_units(of_unit: Any) -> Expr:
    """A cost of every unit that a stage holds, of those recomputed and those not."""
    plain = sym.layers - sym.recompute_layers
    total = plain * of_unit("layer", False) + sym.recompute_layers * of_unit("layer", True)
    for unit in ("embedding", "head"):
        held = (1 - sym.recompute_ends) * of_unit(unit, False) + sym.recompute_ends * of_unit(unit, True)
        total += sym.HELD[unit] * held
    return total


def _beside(
    overlaps: bool, compute: Expr, communication: Expr, copied_in: Expr = ZERO, copied_out: Expr = ZERO
) -> Expr:
    """What communication and host copies add to compute: what the compute cannot hide, or all where it waits."""
    if copied_in == 0 and copied_out == 0:
        return exposed_s(compute, communication) if overlaps else communication
    hidden, waited = (communication, ZERO) if overlaps else (ZERO, communication)
    return waited + exposed_beside_copies_s(compute, hidden, copied_in, copied_out)


def _copied(copy: Any, size: Expr) -> Expr:
    """Seconds of a copy, and no trace of it where nothing is offloaded."""
    return ZERO if size == 0 else copy(size)


def _owned_bytes(unit: str, bytes_per_parameter: float, flag: Expr) -> Expr:
    dense, expert = sym.PARTS[f"{unit}_parameters"], sym.PARTS[f"{unit}_expert_parameters"]
    return bytes_per_parameter * owned_parameters(dense, expert, flag)


def _weights_in(unit: str, recipe: FrameworkRecipe, away: Expr) -> Expr:
    return _copied(from_host_s, away * _owned_bytes(unit, recipe.weight_bytes, sym.shard_weights))


def _kept(unit: str, recomputed: bool) -> Expr:
    return sym.PARTS[f"{unit}_recomputed_saved_bytes" if recomputed else f"{unit}_saved_bytes"]


def _backward(unit: str) -> Expr:
    return sym.PARTS[f"{unit}_input_grad_s"] + sym.PARTS[f"{unit}_weight_grad_s"]

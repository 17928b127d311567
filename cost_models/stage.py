"""The cost of one pipeline rank's option, as three expressions that share one set of names.

`micro_batch_costs`  depends on the degrees, the micro-batch size and the recompute set: dear, few distinct rows.
`exchange_costs`     depends on the state-sharding groups (exchange.py): dear, few distinct rows.
`stage_costs`        arithmetic on both and on the stage's counts and flags: cheap, millions of rows.

Seconds of a micro-batch are additive over chunks: the sum of a rank's chunks is the stage, exactly. That is what lets
the bounds, the cutting planes and the simulator speak of the same numbers.
"""

from typing import Any

from sympy import Integer, sympify

from cost_models import exchange, memory, slicing
from cost_models import symbols as sym
from cost_models.blocks import ZERO, Block, Operator, tokens
from cost_models.exchange import exchange_costs
from cost_models.layers import Unit, chain
from cost_models.operators import (
    beyond_backward_s,
    beyond_forward_s,
    beyond_split_s,
    hop_end_s,
    launch_s,
    maximum,
)
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.vocabulary import COMMUNICATIONS

__all__ = ["exchange_costs", "micro_batch_costs", "stage_costs"]

Expr = Any
ONE = Integer(1)


def micro_batch_costs(model: ModelSpec, recipe: FrameworkRecipe, *, sliced: bool = False) -> dict[str, Expr]:
    """Seconds of one micro-batch, bytes of one slice of it, in the repeating group of layers and the two ends, by name.

    With `sliced` the expressions read the length of a slice, else there is one, the sequence; and it adds what only
    schedules with several slices ask for.
    """
    parts = chain(model, recipe)
    seconds: dict[str, Expr] = {}
    for name, unit in parts.units().items():
        seconds |= _unit_seconds(name, unit, recipe)
        seconds[f"{name}_recompute_s"] = sum((_recompute_seconds(block, recipe) for block in unit.layers), start=ZERO)
        seconds |= slicing.attention_seconds(name, unit) if sliced else {}
    if not recipe.host_runs_ahead:
        seconds["hop_end_s"] = hop_end_s(tokens / sym.tp)
        seconds["layer_split_s"] = beyond_split_s(len(parts.units()["layer"].layers), tokens / sym.tp, sym.tp)
    sizes = memory.micro_batch_bytes(model, parts, recipe, sliced=sliced)
    if sliced:
        passes = sym.seq_len / sym.slice_len
        return {name: passes * value for name, value in seconds.items()} | sizes
    return {name: sympify(cost).xreplace({sym.slice_len: sym.seq_len}) for name, cost in (seconds | sizes).items()}


def stage_costs(
    model: ModelSpec, recipe: FrameworkRecipe, context_bytes: float, *, offload: bool = False, sliced: bool = False
) -> dict[str, Expr]:
    """Seconds (design, section 3) and bytes by cause of one stage, or of one chunk of it, under one option.

    Outputs: forward_s, input_grad_s, weight_grad_s of one micro-batch; first_s, last_s, global_s of a step; the parts
    compute_s, one for each kind of communication, recompute_s, exchange_s that make up one micro-batch; bytes by cause.
    With `offload` the expressions read the offload fractions, with `sliced` the slices of a micro-batch.
    """
    forward, input_grad, weight_grad = (held(name) for name in ("forward_s", "input_grad_s", "weight_grad_s"))
    communication = {f"{name}_s": held(f"{name}_s") for name in COMMUNICATIONS}
    recompute = sym.recompute_layers * sym.PARTS["layer_recompute_s"]
    ends = sym.has_embedding * sym.PARTS["embedding_recompute_s"] + sym.has_head * sym.PARTS["head_recompute_s"]
    recompute += sym.recompute_ends * ends
    forward_exchange = exchange.forward_s(model, recipe, offload=offload, sliced=sliced)
    backward_exchange = exchange.backward_s(model, recipe, offload=offload, sliced=sliced)
    accumulation = exchange.accumulation_s(recipe)
    shared = held("pipeline_exchange_s") if sliced else ZERO
    hops, split = hop_seconds(recipe), split_seconds(recipe)
    return {
        "forward_s": forward + forward_exchange + shared + hops,
        "input_grad_s": input_grad + recompute + backward_exchange + shared + hops,
        "weight_grad_s": weight_grad + accumulation + split,
        "first_s": exchange.first_s(model, recipe, offload=offload, sliced=sliced),
        "last_s": exchange.last_s(model, recipe, sliced=sliced),
        "global_s": exchange.global_s(model, recipe, offload=offload, sliced=sliced),
        "compute_s": forward + input_grad + weight_grad + accumulation + split + 2 * hops - sum(communication.values()),
        **communication,
        "recompute_s": recompute,
        "exchange_s": forward_exchange + backward_exchange,
        **(slicing.stage_seconds() if sliced else {}),
        **memory.stage_bytes(recipe, context_bytes, offload=offload, sliced=sliced),
    }


def held(cost: str) -> Expr:
    """A cost of what a stage holds: its layers, and the ends of the model that it has."""
    return sum(count * sym.PARTS[f"{unit}_{cost}"] for unit, count in sym.HELD.items())


def hop_seconds(recipe: FrameworkRecipe) -> Expr:
    """What a stage itself does for its hops in one direction of a micro-batch, where its host does not run ahead."""
    return ZERO if recipe.host_runs_ahead else sym.hop_ends * sym.PARTS["hop_end_s"]


def split_seconds(recipe: FrameworkRecipe) -> Expr:
    """What splitting the backwards of a stage's layers adds to a micro-batch, where its host does not run ahead.

    Layers that go with the embedding or the head are few and left out.
    """
    if recipe.host_runs_ahead:
        return ZERO
    first = sym.first_split_layers if recipe.splits_first_stage else 0
    return (sym.split_layers + first) * sym.PARTS["layer_split_s"]


def _launches(operator: Operator, recipe: FrameworkRecipe) -> Expr:
    """Kernels of a pass through an operator that the host launches."""
    return ZERO if recipe.cuda_graphs_without_experts and "moe" not in operator.modules else operator.kernels


def _unit_seconds(name: str, unit: Unit, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Forward, input-grad and weight-grad seconds of a unit, and the collectives within, by their group.

    A pass takes at least what its launches take the host. The backward is one pass: the host runs ahead of the device
    through its long kernels, and where it falls behind all the same, the input gradient waits.
    """
    operators = unit.operators
    forward, input_grad, weight_grad = (
        sum(getattr(operator, cost) for operator in operators)
        for cost in ("forward_s", "input_grad_s", "weight_grad_s")
    )
    kernels = sum(_launches(operator, recipe) for operator in operators)
    products = sum(_products(operator, recipe) for operator in operators)
    waiting = maximum(launch_s(kernels + products) - input_grad - weight_grad, 0)
    communication = {
        f"{name}_{group}_s": sum((o.forward_s + o.input_grad_s for o in operators if o.communication == group), ZERO)
        for group in COMMUNICATIONS
    }
    # How many tokens each expert has is known when they have arrived: the host cannot run ahead of their products.
    stalled = sum((_launches(operator, recipe) for operator in operators if operator.expert_parameters != 0), ZERO)
    layers = 0 if recipe.host_runs_ahead else len(unit.layers)
    beyond_forward, beyond_backward = (
        of_pass(layers, tokens / sym.tp, sym.tp) if layers else ZERO
        for of_pass in (beyond_forward_s, beyond_backward_s)
    )
    return {
        f"{name}_forward_s": maximum(forward + launch_s(stalled), launch_s(kernels)) + beyond_forward,
        f"{name}_input_grad_s": input_grad + waiting + beyond_backward,
        f"{name}_weight_grad_s": weight_grad,
        **communication,
    }


def _products(operator: Operator, recipe: FrameworkRecipe) -> Expr:
    """Weight-gradient products of an operator that the host launches: one, or one for each expert."""
    if operator.weight_grad_s == 0:
        return ZERO
    launches = operator.launches_of_products
    return ZERO if _launches(operator, recipe) == 0 else launches


def _recompute_seconds(block: Block, recipe: FrameworkRecipe) -> Expr:
    """Seconds of running again, in the backward of one layer, what the recompute set frees.

    A layer that is run again as a whole may stop early: what follows its last kept tensor makes its output alone.
    """
    seconds: Expr = ZERO
    kernels: Expr = ZERO
    needed = max(index for index, operator in enumerate(block) if operator.saved)
    for index, operator in enumerate(block):
        kept = ONE if recipe.recompute_stops_early and index > needed else 1 - sym.recompute_full
        for module in operator.modules:
            kept *= 1 - sym.RECOMPUTE_FLAGS[module]
        seconds += (1 - kept) * operator.forward_s
        kernels += (1 - kept) * _launches(operator, recipe)
    return maximum(seconds, launch_s(kernels))

"""The collectives of one step of a stage, counted in the expressions that its time is made of."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import sympy
from sympy.core.function import AppliedUndef

from cost_models import exchange
from cost_models.layers import chain
from cost_models.operators import exposed_beside_copies_s, exposed_s
from cost_models.symbols import HELD, PARTS
from planner.explain.formulas import COLLECTIVES, reduced
from planner.explain.setting import Expr, Setting

__all__ = ["StepCollective", "step_collectives"]

PASSES = ("forward_s", "input_grad_s", "weight_grad_s")
# Counts closer to a whole number than this are that number.
ROUNDING = 1e-9


@dataclass(frozen=True)
class StepCollective:
    """One kind of collective that one part of a stage calls, over a whole step.

    `kind` is all_gather, reduce_scatter, all_reduce or an exchange; `purpose` is an operator's kind of communication
    (tensor_parallel and the like), `recompute`, or the name of the expression of a state exchange; `sent_bytes` are
    those of the whole tensors, of all calls together.
    """

    purpose: str
    unit: str
    kind: str
    ranks: int
    stride: int
    calls: float
    sent_bytes: float


def step_collectives(setting: Setting) -> tuple[StepCollective, ...]:
    """What a stage of a plan calls in a step, but for what passes between stages."""
    layout = setting.plan.candidate.pipeline.layout
    micro_batches = layout["num_microbatches"]
    found: dict[tuple[str, str, str, int, int], list[float]] = {}
    for part in _parts(setting, micro_batches):
        for kind, sizes, count in _called(setting, _settled(setting, part.expression), 1.0):
            size, ranks, stride = sizes[0], int(sizes[-2]), int(sizes[-1])
            if ranks > 1 and size > 0:
                total = found.setdefault((part.purpose, part.unit, kind, ranks, stride), [0.0, 0.0])
                total[0] += part.calls * count
                total[1] += part.volume * count * size
    return tuple(StepCollective(*key, *total) for key, total in found.items() if abs(total[0]) > ROUNDING)


class _Part(NamedTuple):
    """Seconds that a stage pays for, how often in a step, and for what share of a call's bytes all times together."""

    purpose: str
    unit: str
    calls: float
    volume: float
    expression: Expr


def _parts(setting: Setting, micro_batches: int) -> Iterator[_Part]:
    """All that a stage runs."""
    request = setting.plan.model.request
    held = setting.values(HELD.values())
    for unit, each in chain(request.model, request.recipe).units().items():
        for operator in each.operators:
            times = held[str(HELD[unit])] * micro_batches
            if times and operator.communication is not None:
                for name in PASSES:
                    seconds = setting.of_micro_batch(getattr(operator, name))
                    yield _Part(operator.communication, unit, times, times, seconds)
    yield from _recomputed(setting, micro_batches)
    yield from _exchanged(setting, micro_batches)


def _recomputed(setting: Setting, micro_batches: int) -> Iterator[_Part]:
    counts = setting.symbols(("recompute_layers", "recompute_ends", "has_embedding", "has_head"))
    layers, ends = counts["recompute_layers"], counts["recompute_ends"]
    held = {"layer": layers, "embedding": ends * counts["has_embedding"], "head": ends * counts["has_head"]}
    for unit, count in held.items():
        if count:
            times = count * micro_batches
            yield _Part("recompute", unit, times, times, setting.plan.part_expressions[f"{unit}_recompute_s"])


def _exchanged(setting: Setting, micro_batches: int) -> Iterator[_Part]:
    """Gathers and reductions of states, as often as the stage's expressions have them.

    A tied matrix goes with the embedding: what is left of the head's call is a call all the same.
    """
    model = setting.plan.model
    request, read = model.request, {"offload": model.offload, "sliced": model.sliced}
    spec, recipe = request.model, request.recipe
    in_pass = {
        "forward": (exchange.forward_s(spec, recipe, **read), micro_batches),
        "backward": (exchange.backward_s(spec, recipe, **read), micro_batches),
        "first": (exchange.first_s(spec, recipe, **read), 1),
        "last": (exchange.last_s(spec, recipe, sliced=model.sliced), 1),
        "global": (exchange.global_s(spec, recipe, **read), 1),
    }
    ours = {f"{unit}_{cost}" for unit in HELD for cost in ("gather_s", "reduce_s", "all_reduce_s")}
    ours |= {"gradient_norm_reduce_s", "tied_reduce_s"}
    known = {PARTS[name]: setting.plan.part_expressions[name] for name in ours}
    for expression, times in in_pass.values():
        for symbol, made_of in known.items():
            share = _coefficient(setting, expression, symbol)
            if share > ROUNDING:
                calls = math.ceil(share - ROUNDING) * times
                yield _Part(str(symbol), _unit_of(str(symbol)), calls, share * times, made_of)


def _coefficient(setting: Setting, expression: Expr, symbol: Expr) -> float:
    """How often a symbol is paid for in an expression, hidden behind something or not."""
    return sum(count for _, __, count in _called(setting, expression, 1.0, symbol))


def _unit_of(part: str) -> str:
    return next((unit for unit in HELD if part.startswith(f"{unit}_")), "stage")


def _settled(setting: Setting, expression: Expr) -> Expr:
    return reduced(expression, setting.values([expression]))


def _called(
    setting: Setting, node: Expr, times: float, symbol: Expr | None = None
) -> Iterator[tuple[str, tuple[float, ...], float]]:
    """The collectives in an expression, or the uses of a symbol: kind, sizes and how often; less what is taken off."""
    wanted = (lambda part: part.has(symbol)) if symbol is not None else _has_collective
    if node == symbol:
        yield str(node), (), times
    elif not wanted(node):
        return
    elif node.is_Add:
        for term in node.args:
            yield from _called(setting, term, times, symbol)
    elif node.is_Mul:
        numbers = [factor for factor in node.args if not wanted(factor)]
        (part,) = (factor for factor in node.args if wanted(factor))
        yield from _called(setting, part, times * _value(setting, sympy.Mul(*numbers)), symbol)
    elif isinstance(node, (exposed_s, exposed_beside_copies_s)):
        yield from _called(setting, node.args[1], times, symbol)
    elif node.func.__name__ in COLLECTIVES:
        yield node.func.__name__.removesuffix("_s"), tuple(_value(setting, size) for size in node.args), times
    else:  # the longer of a pass and of its launches
        for part in node.args:
            yield from _called(setting, part, times, symbol)


def _has_collective(node: Expr) -> bool:
    return any(each.func.__name__ in COLLECTIVES for each in node.atoms(AppliedUndef))


def _value(setting: Setting, expression: Expr) -> float:
    return setting.evaluated({"value": expression})["value"]

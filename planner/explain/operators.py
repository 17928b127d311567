"""The operators of one unit of the model: what each pass of one micro-batch computes, moves and takes."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import sympy
from sympy.core.function import AppliedUndef

from cost_models.blocks import Operator
from cost_models.communication import outermost_tier
from cost_models.kernels import BACKWARD_PRODUCTS
from cost_models.layers import chain
from cost_models.operators import exposed_beside_copies_s, exposed_s
from planner.explain.formulas import COLLECTIVES, ELEMENTWISE, reduced, values_of
from planner.explain.setting import Expr, Setting

__all__ = ["KINDS", "Call", "OperatorCost", "calls", "unit_operators"]

PASSES = ("forward_s", "input_grad_s", "weight_grad_s")
BACKWARD_ATTENTION = 2.0 * BACKWARD_PRODUCTS
GEMMS = ("gemm_forward_s", "gemm_input_grad_s", "gemm_weight_grad_s")
GROUPED = tuple(f"grouped_{name}" for name in GEMMS)
ATTENTION = ("attention_forward_s", "attention_backward_s")
KINDS = {
    **dict.fromkeys(GEMMS, "gemm"),
    **dict.fromkeys(GROUPED, "grouped gemm"),
    **dict.fromkeys(ATTENTION, "attention"),
    **dict.fromkeys(ELEMENTWISE, "elementwise"),
    **dict.fromkeys(COLLECTIVES, "collective"),
}
# The kind of an operator is that of the weightiest function that it calls.
WEIGHTS = ("attention", "grouped gemm", "gemm", "collective", "elementwise")
# FLOPs of each operator's sizes; those that multiply no matrices have none.
FLOPS: Mapping[str, Any] = {
    **dict.fromkeys(GEMMS, lambda rows, columns, inner: 2.0 * rows * columns * inner),
    **dict.fromkeys(GROUPED, lambda rows, columns, inner, _: 2.0 * rows * columns * inner),
    "attention_forward_s": lambda batch, heads, queries, keys, width: 2.0 * batch * heads * queries * keys * width,
    "attention_backward_s": lambda *sizes: BACKWARD_ATTENTION * float(np.prod(sizes)),
    **dict.fromkeys(
        (
            *COLLECTIVES,
            *ELEMENTWISE,
            "launch_s",
            "beyond_forward_s",
            "beyond_backward_s",
            "beyond_split_s",
            "hop_end_s",
            "exposed_s",
        ),
        lambda *_: 0.0,
    ),
}


@dataclass(frozen=True)
class Call:
    """One function that an operator calls in a pass, `times` over: its sizes as text, and what it takes by itself.

    A collective moves `moved_bytes` among `ranks` that are `stride` apart and reaches the network `tier`; `hidden`
    ones run beside a product. `exposed_s` is what all the times add to the pass, None where that is not of the call
    alone. `measured` is 1 where the seconds rest on measurements of this size on this device, else 0.
    """

    of_pass: str
    function: str
    times: float
    sizes: str
    seconds: float
    flops: float = 0.0
    moved_bytes: float = 0.0
    ranks: int = 1
    stride: int = 1
    tier: str = ""
    hidden: bool = False
    measured: float = 0.0
    exposed_s: float | None = None


@dataclass(frozen=True)
class OperatorCost:
    """Seconds of one operator of a unit, of one micro-batch on one rank; `alike` operators of the unit together.

    `peak_share` is the share of the peak of its products' dtype that it reaches; none where it multiplies nothing.
    `measured_share` of the seconds of its kernels and links rests on measurements; none where it takes no time.
    """

    unit: str
    name: str
    kind: str
    alike: int
    forward_s: float
    input_grad_s: float
    weight_grad_s: float
    flops: float
    peak_share: float | None
    measured_share: float | None
    communication: str | None
    modules: tuple[str, ...]
    calls: tuple[Call, ...]

    @property
    def total_s(self) -> float:
        """Seconds of its three passes."""
        return self.forward_s + self.input_grad_s + self.weight_grad_s


def unit_operators(setting: Setting) -> dict[str, tuple[OperatorCost, ...]]:
    """The operators of each unit of the model, by unit, in the order of the forward."""
    request = setting.plan.model.request
    units = chain(request.model, request.recipe).units()
    return {
        name: tuple(_costed(setting, name, operator, alike) for operator, alike in Counter(unit.operators).items())
        for name, unit in units.items()
    }


def _costed(setting: Setting, unit: str, operator: Operator, alike: int) -> OperatorCost:
    expressions = {name: setting.of_micro_batch(getattr(operator, name)) for name in PASSES}
    seconds = {name: setting.relief * each for name, each in setting.evaluated(expressions).items()}
    called = tuple(
        call for name in PASSES for call in calls(setting, expressions[name], name.removesuffix("_s"), setting.relief)
    )
    values = setting.values(expressions.values())
    flops = alike * sum(values_of(expressions, values, FLOPS).values())
    kinds = {KINDS[f"{call.function}_s"] for call in called}
    kind = next((kind for kind in WEIGHTS if kind in kinds), "none")
    total_s = alike * sum(seconds.values())
    return OperatorCost(
        unit=unit,
        name=operator.name,
        kind=kind,
        alike=alike,
        **{name: alike * seconds[name] for name in PASSES},
        flops=flops,
        peak_share=flops / total_s / _peak_flops(setting, kind) if flops and total_s else None,
        measured_share=_measured_share(called),
        communication=operator.communication,
        modules=operator.modules,
        calls=called,
    )


def _measured_share(called: tuple[Call, ...]) -> float | None:
    """The share of the seconds of some calls that rests on measurements."""
    total_s = sum(call.times * call.seconds for call in called)
    return sum(call.measured * call.times * call.seconds for call in called) / total_s if total_s else None


def _peak_flops(setting: Setting, kind: str) -> float:
    request = setting.plan.model.request
    dtype = "bf16" if kind == "attention" else request.workload.precision
    return float(request.cluster.gpu.peak_flops[dtype])


def calls(setting: Setting, expression: Expr, of_pass: str, relief: float = 1.0) -> tuple[Call, ...]:
    """What an expression calls on this stage, with sizes and seconds; calls of a size of nothing are left out.

    `relief` is what the seconds shrink to where nodes are left idle.
    """
    plain = reduced(expression, setting.values([expression]))
    found = [_call(setting, *each, of_pass) for each in _called(plain, sympy.Integer(1), hidden=False)]
    made = [call for call in found if call.seconds > 0 and call.times > 0]
    total_s = setting.evaluated({"total": expression})["total"]
    visible_s, hidden_s = (sum(c.times * c.seconds for c in made if c.hidden is hidden) for hidden in (False, True))
    left = max(total_s - visible_s, 0.0) / hidden_s if hidden_s else 0.0
    relieved = (replace(call, seconds=relief * call.seconds) for call in made)
    return tuple(replace(c, exposed_s=c.times * c.seconds * (left if c.hidden else 1.0)) for c in relieved)


def _called(expression: Expr, times: Expr, *, hidden: bool) -> Iterator[tuple[AppliedUndef, Expr, bool]]:
    """The kernels and collectives in an expression, how often each, and whether something hides it."""
    for term in sympy.Add.make_args(expression):
        parts = [factor for factor in sympy.Mul.make_args(term) if factor.atoms(AppliedUndef)]
        factor = times * sympy.Mul(*(each for each in sympy.Mul.make_args(term) if each not in parts))
        for part in parts:
            if isinstance(part, (exposed_s, exposed_beside_copies_s)):
                yield from _called(part.args[1], factor, hidden=True)
            elif part.is_Add:
                yield from _called(part, factor, hidden=hidden)
            elif f"{part.func}" in KINDS:
                yield part, factor, hidden
            else:  # a number that the model chooses, such as keys in a window
                factor *= part


def _call(setting: Setting, node: AppliedUndef, times: Expr, hidden: bool, of_pass: str) -> Call:
    name = node.func.__name__
    arguments = {f"argument {index}": value for index, value in enumerate(node.args)}
    values = setting.evaluated({**arguments, "times": times, "seconds": node})
    sizes = [values[each] for each in arguments]
    moved = name in ELEMENTWISE or name in COLLECTIVES
    ranks, stride = (int(size) for size in sizes[-2:]) if name in COLLECTIVES else (1, 1)
    return Call(
        of_pass,
        name.removesuffix("_s"),
        values["times"],
        "" if moved else " x ".join(f"{size:,.6g}" for size in sizes),
        values["seconds"],
        flops=float(FLOPS[name](*sizes)),
        moved_bytes=sizes[0] if moved else 0.0,
        ranks=ranks,
        stride=stride,
        tier=outermost_tier(setting.plan.model.request.cluster, ranks, stride) if ranks > 1 else "",
        hidden=hidden,
        measured=float(np.ravel(setting.plan.model.coverage[node.func.__name__](*map(np.asarray, sizes)))[0]),
    )

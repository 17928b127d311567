"""The time of one stage by cause: operators, recompute, state exchange. It adds up to what the plan was costed with."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from cost_models import exchange, stage
from cost_models import symbols as sym
from cost_models.symbols import HELD
from planner.explain.formulas import Formula
from planner.explain.operators import PASSES, Call, OperatorCost, calls
from planner.explain.setting import Expr, Setting

__all__ = ["StageSeconds", "TimePart", "stage_seconds"]

# Of the seconds of a pass: a smaller difference is rounding.
ROUNDING = 1e-12
FORMULAS = ("forward_s", "input_grad_s", "weight_grad_s", "first_s", "last_s", "global_s")


@dataclass(frozen=True)
class TimePart:
    """Seconds that one cause takes of one micro-batch in all chunks of a stage: `held` times what a unit takes.

    `cause` is that of the time breakdown: compute, a kind of communication, recompute or state_exchange.
    """

    cause: str
    unit: str
    name: str
    held: float
    forward_s: float
    input_grad_s: float
    weight_grad_s: float

    @property
    def total_s(self) -> float:
        """Seconds of its three passes."""
        return self.forward_s + self.input_grad_s + self.weight_grad_s


@dataclass(frozen=True)
class StageSeconds:
    """`parts` add up to the first three of `formulas`, which are the stage's forward and backward of one micro-batch.

    `exchanges` are the collectives that move states, each by itself: what of them nothing hides is in the formulas.
    """

    formulas: tuple[Formula, ...]
    parts: tuple[TimePart, ...]
    exchanges: tuple[Call, ...]


def stage_seconds(setting: Setting, operators: Mapping[str, tuple[OperatorCost, ...]]) -> StageSeconds:
    """What the stage's time is made of; `operators` are those of `unit_operators`."""
    expressions = setting.plan.stage_expressions
    return StageSeconds(
        formulas=tuple(setting.formula(name, expressions[name], setting.cost(name), "s") for name in FORMULAS),
        parts=(*_operator_parts(setting, operators), *_recompute_parts(setting), *_exchange_parts(setting)),
        exchanges=_exchanges(setting),
    )


def _operator_parts(setting: Setting, operators: Mapping[str, tuple[OperatorCost, ...]]) -> list[TimePart]:
    """The operators that the stage holds, and what the host's launches add to them."""
    parts = []
    for unit, count in HELD.items():
        held = setting.values([count])[str(count)]
        if not held:
            continue
        for each in operators[unit]:
            seconds = {name: held * getattr(each, name) for name in PASSES}
            parts.append(TimePart(each.communication or "compute", unit, each.name, held, **seconds))
        parts.append(_launches(setting, unit, held, operators[unit]))
    return [part for part in parts if part.total_s > 0]


def _launches(setting: Setting, unit: str, held: float, operators: tuple[OperatorCost, ...]) -> TimePart:
    """What passes take beyond their operators: the host launches no faster, or has other work that nothing hides."""
    parts = setting.symbols(f"{unit}_{name}" for name in PASSES)
    costs = {name: parts[f"{unit}_{name}"] for name in PASSES}
    beyond = {name: costs[name] - sum(getattr(each, name) for each in operators) for name in PASSES}
    # A difference of sums: what is left of rounding is nothing.
    seconds = {name: held * amount if amount > ROUNDING * costs[name] else 0.0 for name, amount in beyond.items()}
    name = "waiting for launches" if setting.plan.model.request.recipe.host_runs_ahead else "beyond operators"
    return TimePart("compute", unit, name, held, **seconds)


def _recompute_parts(setting: Setting) -> list[TimePart]:
    """Running again what the recompute set frees, by unit."""
    counts = setting.values([sym.recompute_layers, sym.recompute_ends, sym.has_embedding, sym.has_head])
    held = {
        "layer": counts["recompute_layers"],
        "embedding": counts["recompute_ends"] * counts["has_embedding"],
        "head": counts["recompute_ends"] * counts["has_head"],
    }
    parts = []
    for unit, count in held.items():
        cost = setting.symbols([f"{unit}_recompute_s"])[f"{unit}_recompute_s"]
        if count * cost > 0:
            parts.append(TimePart("recompute", unit, "recompute", count, 0.0, count * cost, 0.0))
    return parts


def _exchange_parts(setting: Setting) -> list[TimePart]:
    """What of moving states, in every micro-batch, nothing hides, what adding up gradients, hops and splitting take,
    and what pipeline ranks exchange for their slices."""
    model = setting.plan.model
    request, offload, sliced = model.request, model.offload, model.sliced
    seconds = setting.evaluated(
        {
            "forward": exchange.forward_s(request.model, request.recipe, offload=offload, sliced=sliced),
            "backward": exchange.backward_s(request.model, request.recipe, offload=offload, sliced=sliced),
            "accumulation": exchange.accumulation_s(request.recipe),
            "hops": stage.hop_seconds(request.recipe),
            "split": stage.split_seconds(request.recipe),
        }
    )
    parts = [TimePart("state_exchange", "stage", "state exchange", 1, seconds["forward"], seconds["backward"], 0.0)]
    parts.append(TimePart("compute", "stage", "adding up gradients", 1, 0.0, 0.0, seconds["accumulation"]))
    parts.append(TimePart("compute", "stage", "ends of hops", 1, seconds["hops"], seconds["hops"], 0.0))
    parts.append(TimePart("compute", "stage", "splitting the backward", 1, 0.0, 0.0, seconds["split"]))
    if sliced:
        shared_s = setting.cost("pipeline_exchange_s") / 2
        parts.append(TimePart("pipeline_exchange", "stage", "pipeline exchange", 1, shared_s, shared_s, 0.0))
    return [part for part in parts if part.total_s > 0]


def _exchanges(setting: Setting) -> tuple[Call, ...]:
    """The gathers and reductions of the units that the stage holds, and those of the whole job."""
    known = setting.plan.part_expressions
    sharded = bool(setting.values([sym.shard_optimizer])["shard_optimizer"])
    wanted: list[tuple[str, Expr]] = []
    for unit, count in HELD.items():
        if setting.values([count])[str(count)]:
            reduce = f"{unit}_reduce_s" if sharded else f"{unit}_all_reduce_s"
            wanted += [(f"{unit} gradients", known[reduce])]
            wanted += [(f"{unit} parameters", known[f"{unit}_gather_s"])] * sharded
    wanted += [("gradient norm", known["gradient_norm_reduce_s"]), ("tied embedding", known["tied_reduce_s"])]
    found = (call for name, expression in wanted for call in calls(setting, expression, name))
    return tuple(replace(call, exposed_s=None) for call in found)

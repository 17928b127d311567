"""Which rules no layout with some fixed values can obey."""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cost_models import schedules
from cost_models.schedules.errors import IllegalScheduleError
from planner import rules
from planner.request import PlanRequest
from planner.rules import FLEXIBLE
from planner.space import CONTEXT_TYPES, SCHEDULES, known_values, schedule_names, sequence_parallel

__all__ = ["BrokenRule", "broken_rules", "violations"]

# Degrees that take their other values from these when they are free: dp, the batch split and the shard groups.
FREE = ("tp", "cp", "pp", "vpp", "ep", "etp", "schedule")


@dataclass(frozen=True)
class BrokenRule:
    """The id of a rule, and what it says: the field, the value and the nearest that is legal."""

    id: str
    message: str


def broken_rules(request: PlanRequest, plan: Mapping[str, int]) -> tuple[BrokenRule, ...]:
    """The rules that the layout broken least among those with the values of `request.fixed` breaks.

    Free fields are tried at the value of `plan`, at the least one and at those that others leave them.
    """
    known = known_values(request)
    fewest: list[tuple[str, str]] | None = None
    for layout in _completions(request, plan):
        broken = violations({**known, **layout}, flexible=FLEXIBLE in request.schedules)
        broken += rules.refusals({**known, **layout}, request.target, "mesh", "layout")
        if fewest is None or len(broken) < len(fewest):
            fewest = broken
        if not fewest:
            break
    return tuple(BrokenRule(*each) for each in fewest or ())


def violations(values: Mapping[str, Any], *ids: str, flexible: bool) -> list[tuple[str, str]]:
    """As `rules.violations`, and what the layout's schedule asks for where these rules have nothing to say.

    Groups of as many micro-batches as ranks are a rule of interleaving that is not `flexible`.
    """
    broken = rules.violations(values, *ids)
    if SCHEDULES[values["schedule"]] != "interleaved" or flexible:
        broken = [(name, message) for name, message in broken if name != "interleaving-needs-whole-groups"]
    if any(name.startswith("interleaving-") for name, _ in broken):
        return broken
    return broken + _schedule_breaks(values)


def _completions(request: PlanRequest, plan: Mapping[str, int]) -> Iterator[dict[str, int]]:
    """Layouts with the fixed values: every choice of the free degrees, and what the batch and the GPUs leave."""
    fixed, batch = request.fixed, request.workload.global_batch
    choices = [_values(name, request, plan) for name in FREE]
    sizes = _values("micro_batch_size", request, plan)
    for combination in itertools.product(*choices):
        layout = dict(zip(FREE, combination, strict=True))
        inner = layout["tp"] * layout["cp"] * layout["pp"]
        for dp, size in itertools.product(_data_ranks(request, plan, inner), sizes):
            count = fixed.get("num_microbatches", max(batch // (dp * size), 1))
            replicas = fixed.get("dp_replicate", max(dp // fixed.get("dp_shard", dp), 1))
            yield {
                **layout,
                **_context(request, layout["cp"]),
                "sequence_parallel": fixed.get(
                    "sequence_parallel", int(layout["tp"] > 1 and sequence_parallel(request))
                ),
                "rank_order": fixed.get("rank_order", 0),
                "dp": dp,
                "dp_replicate": replicas,
                "dp_shard": fixed.get("dp_shard", max(dp // replicas, 1)),
                "micro_batch_size": size,
                "num_microbatches": count,
                "slices": fixed.get("slices", _slices(layout)),
                "group_size": fixed.get("group_size", 0),
            }


def _values(name: str, request: PlanRequest, plan: Mapping[str, int]) -> tuple[int, ...]:
    if name in request.fixed:
        return (request.fixed[name],)
    if name == "schedule":
        return tuple(index for index, each in enumerate(SCHEDULES) if each in schedule_names(request))
    if name == "pp" and (request.fixed.get("slices", 1) > 1 or request.fixed.get("group_size")):
        return tuple(dict.fromkeys((max(plan["pp"], 2), 2)))  # one rank has neither
    if name == "vpp":
        return tuple(dict.fromkeys((plan["vpp"], 1, 2)))
    return tuple(dict.fromkeys((plan[name], 1)))


def _data_ranks(request: PlanRequest, plan: Mapping[str, int], inner: int) -> tuple[int, ...]:
    """Values of dp: the fixed one, or the plan's, what GPUs, batch split or shard groups leave, the least."""
    fixed = request.fixed
    if "dp" in fixed:
        return (fixed["dp"],)
    of_batch = fixed.get("micro_batch_size", 1) * fixed.get("num_microbatches", request.workload.global_batch)
    left = (request.cluster.gpus // inner, request.workload.global_batch // of_batch)
    groups = fixed.get("dp_shard", 1) * fixed.get("dp_replicate", 1)
    return tuple(dict.fromkeys(max(value, 1) for value in (plan["dp"], *left, groups, 1)))


def _context(request: PlanRequest, cp: int) -> dict[str, int]:
    """How the context is split, as the fixed kind has it."""
    kind = CONTEXT_TYPES[request.fixed.get("cp_type", 0)]
    switched = cp if kind == "ulysses" else 2 if kind == "hierarchical" else 1
    heads = request.fixed.get("cp_heads", switched)
    return {"cp_type": CONTEXT_TYPES.index(kind), "cp_heads": heads, "cp_ring": int(kind in ("ring", "hierarchical"))}


def _slices(layout: Mapping[str, int]) -> int:
    """The fewest slices of a schedule that cuts sequences: as many as ranks, that take turns with them."""
    return max(layout["pp"], 2) if SCHEDULES[layout["schedule"]] in schedules.SLICED else 1


def _schedule_breaks(layout: Mapping[str, int]) -> list[tuple[str, str]]:
    """What the schedule itself asks for, where the rules have nothing to say."""
    name = SCHEDULES[layout["schedule"]]
    size, slices = layout.get("group_size", 0), layout.get("slices", _slices(layout))
    try:
        chosen = schedules.schedule(name, slices=slices, group_size=size or None)
    except IllegalScheduleError as error:
        return [(f"schedule-{name}", str(error))]
    pp, vpp, count = (layout[field] for field in ("pp", "vpp", "num_microbatches"))
    if bool(chosen.legal(pp, vpp, count)):
        return []
    cut = "".join(
        f", {field} {value}" for field, value, none in (("slices", slices, 1), ("group_size", size, 0)) if value > none
    )
    got = f"pp {pp}, vpp {vpp}, num_microbatches {count}{cut}"
    return [(f"schedule-{name}", f"{name} needs {chosen.REQUIRES}; got {got}")]

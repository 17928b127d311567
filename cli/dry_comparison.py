"""A dry run beside the planner's prediction: what is equal, what differs for a known reason, and what for none."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from cli.dry_differences import Difference, differences
from cli.dry_prediction import Prediction
from planner.document.job import Job
from runtime.dry_run import DryRank

__all__ = ["Comparison", "Quantity", "compared"]

# All quantities are whole numbers; means of whole numbers are rounded.
ROUNDING, RELATIVE_ROUNDING = 0.5, 1e-12
# Where one group of ranks has several names it goes by the first of these.
NAMES = ("tensor", "context", "states", "replicas", "data", "pipeline", "copies", "world")


@dataclass(frozen=True)
class Quantity:
    """One number of a rank: as the planner predicts it, as the dry run found it, and why they differ."""

    item: tuple[str, ...]
    """What it is: `parameters`, `state` of a cause, `calls` or `bytes` of a group's collective, and so on."""
    unit: str
    predicted: float
    found: float
    explained: tuple[Difference, ...] = ()

    @property
    def unexplained(self) -> float:
        """What is left of the difference without a reason; 0 where it is rounding."""
        left = self.found - self.predicted - sum(one.amount for one in self.explained)
        allowed = ROUNDING + RELATIVE_ROUNDING * abs(self.predicted)
        return 0.0 if abs(left) <= allowed else left

    @property
    def verdict(self) -> str:
        """`equal`, `explained` or `differs`."""
        if self.unexplained:
            return "differs"
        return "explained" if self.explained else "equal"


@dataclass(frozen=True)
class Comparison:
    """All quantities of one rank. `faults` are sentences on what is no number: groups and the order of actions."""

    rank: int
    stage: int
    kind: str
    quantities: tuple[Quantity, ...]
    faults: tuple[str, ...]
    micro_batches_run: tuple[int, ...]
    micro_batches: int

    @property
    def agrees(self) -> bool:
        """Whether nothing differs without a reason."""
        return not self.faults and not any(one.unexplained for one in self.quantities)


def compared(prediction: Prediction, job: Job, found: DryRank, kind: str) -> Comparison:
    """The dry run of a rank and the prediction for its stage, side by side."""
    known: dict[tuple[str, ...], list[Difference]] = {}
    for one in differences(prediction, job, found):
        known.setdefault(_renamed(one.item, found), []).append(one)
    predicted, counted = _predicted(prediction, job, found), _found(job, found)
    items = [*predicted, *(item for item in counted if item not in predicted)]
    quantities = tuple(
        Quantity(
            item,
            _unit(item),
            predicted.get(item, 0.0),
            counted.get(item, 0.0),
            tuple(known.pop(item, ())),
        )
        for item in sorted(items, key=_place)
    )
    # A reason for what neither side has is a difference by itself.
    orphans = tuple(Quantity(item, _unit(item), 0.0, 0.0, tuple(reasons)) for item, reasons in known.items())
    return Comparison(
        rank=found.rank,
        stage=found.pipeline_rank,
        kind=kind,
        quantities=quantities + orphans,
        faults=tuple(_faults(prediction, job, found)),
        micro_batches_run=found.micro_batches_run,
        micro_batches=job.layout.num_microbatches,
    )


def _predicted(prediction: Prediction, job: Job, found: DryRank) -> dict[tuple[str, ...], float]:
    amounts: dict[tuple[str, ...], float] = {
        ("parameters",): prediction.parameters,
        ("owned parameters",): prediction.owned_parameters,
        ("actions",): len(prediction.actions),
    }
    for cause in _state_bytes(job, found):
        amounts["state", cause] = prediction.setting.cost(cause)
    boundary_bytes = prediction.symbol("boundary_bytes")
    for kind, count in prediction.messages.items():
        amounts["calls", "pipeline", kind] = count
        amounts["bytes", "pipeline", kind] = count * boundary_bytes
    for one in prediction.collectives:
        for unit, amount in (("calls", one.calls), ("bytes", one.sent_bytes)):
            item = _renamed((unit, prediction.group_of(one), one.kind), found)
            amounts[item] = amounts.get(item, 0.0) + amount
    return amounts


def _found(job: Job, found: DryRank) -> dict[tuple[str, ...], float]:
    amounts: dict[tuple[str, ...], float] = {
        ("parameters",): found.parameters,
        ("owned parameters",): found.owned_parameters,
        ("actions",): len(found.actions),
    }
    for cause, size in _state_bytes(job, found).items():
        amounts["state", cause] = size
    names = {found.groups[name]: name for name in reversed(NAMES) if name in found.groups}
    for one in found.sent:
        amounts["calls", names[one.ranks], one.kind] = one.calls
        amounts["bytes", names[one.ranks], one.kind] = one.sent_bytes
    return amounts


def _state_bytes(job: Job, found: DryRank) -> dict[str, int]:
    """The states that a rank keeps through a step, by the plan's cause; not what comes and goes with a layer."""
    stage, kept = job.stages[found.pipeline_rank], found.state_bytes
    is_sharded, has_masters = stage.zero_stage == 3, bool(job.recipe.master_bytes)
    causes = {"gradients": kept["gradients"], "moments": kept["moments"]}
    if is_sharded and not stage.reshard_after_forward:
        causes["gathered_parameters"] = kept["gathered"]
    causes["weights"] = 0 if is_sharded else kept["gathered"]
    causes["master_weights" if has_masters else "weights"] = kept["owned"] + (0 if has_masters else causes["weights"])
    return causes


def _renamed(item: tuple[str, ...], found: DryRank) -> tuple[str, ...]:
    """An item of a group under the first name of the group's ranks."""
    if len(item) < 3 or item[1] not in found.groups:
        return item
    ranks = found.groups[item[1]]
    return item[0], next(name for name in NAMES if found.groups.get(name) == ranks), item[2]


def _faults(prediction: Prediction, job: Job, found: DryRank) -> Iterator[str]:
    if prediction.setting.rank != found.pipeline_rank:
        yield f"rank {found.rank} must be of stage {prediction.setting.rank}, got stage {found.pipeline_rank}"
    inside = job.layout.rank_order == "tp-cp-ep-pp-dp" and job.layout.pp > 1
    for name, (size, stride) in prediction.groups.items():
        ranks = found.groups.get(name, (found.rank,))
        own = len(ranks), ranks[1] - ranks[0] if len(ranks) > 1 else 0
        # Contexts inside pipelines inside data parallelism: no single distance says where their ranks are.
        is_uneven = name == "states" and inside and "context" in found.groups
        if own != (size, stride) and not (is_uneven and own[0] == size):
            yield f"group {name} must be {size} ranks, {stride} apart, got {own[0]} ranks, {own[1]} apart"
    pairs = zip(prediction.actions, found.actions, strict=False)
    wrong = next(((place, *pair) for place, pair in enumerate(pairs) if pair[0] != pair[1]), None)
    if wrong:
        place, expected, got = wrong
        yield f"action {place} must be {_action(expected)}, got {_action(got)}"


def _action(action: tuple[str, int, int]) -> str:
    return f"{action[0]} of virtual stage {action[1]}, micro-batch {action[2]}"


def _unit(item: tuple[str, ...]) -> str:
    return {"state": "bytes", "bytes": "bytes", "calls": "calls", "actions": "actions"}.get(item[0], "elements")


def _place(item: tuple[str, ...]) -> tuple[Any, ...]:
    order = ("parameters", "owned parameters", "state", "actions", "calls", "bytes")
    group = NAMES.index(item[1]) if len(item) > 2 and item[1] in NAMES else len(NAMES)
    return (
        (order.index(item[0]), group, item[1:]) if item[0] not in ("calls", "bytes") else (4, group, item[2], item[0])
    )

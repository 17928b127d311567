"""`tp=8,pp=2`: values that every plan of a search is held to."""

import json
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, field_validator

from cost_models.schedules import GROUPED, SLICED
from cost_models.specs.base import Flag, NonNegativeInt, PositiveInt, Spec
from cost_models.specs.errors import did_you_mean
from planner.document import PlanDocument, Stage
from planner.errors import RequestError
from planner.request import PlanRequest
from planner.rules import FLEXIBLE
from planner.space import CONTEXT_TYPES, RANK_ORDERS, SCHEDULES

__all__ = ["Restriction", "has", "pairs", "parsed", "restricted"]

Degree = PositiveInt | None


class Restriction(Spec):
    """Values of a plan's fields, None where any will do. All are the document's own names and values."""

    label: ClassVar[str] = "why-not"

    tp: Degree = None
    sequence_parallel: Flag | None = None
    pp: Degree = None
    vpp: Degree = None
    cp: Degree = None
    cp_type: Literal["all_gather", "ring", "ulysses", "hierarchical"] | None = None
    cp_heads: Degree = None
    ep: Degree = None
    etp: Degree = None
    dp: Degree = None
    dp_shard: Degree = None
    dp_replicate: Degree = None
    rank_order: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] | None = None
    micro_batch_size: Degree = None
    num_microbatches: Degree = None
    schedule: str | None = None
    group_size: NonNegativeInt | None = None
    slices: Degree = None
    zero_stage: Annotated[NonNegativeInt, Field(le=3)] | None = None
    recompute: Literal["none", "selective", "full"] | None = None

    @field_validator("schedule")
    @classmethod
    def _searched(cls, name: str | None) -> str | None:
        if name is not None and name not in SCHEDULES:
            message = f"must be one of {', '.join(SCHEDULES)}, got {name!r}{did_you_mean(name, SCHEDULES)}"
            raise ValueError(message)
        return name

    @property
    def given(self) -> dict[str, Any]:
        """The values that were given, by field."""
        return {name: value for name, value in self if value is not None}

    @property
    def text(self) -> str:
        """The values as they are written: `tp=8, pp=2`."""
        return ", ".join(f"{name}={_written(value)}" for name, value in self.given.items())


def parsed(text: str) -> Restriction:
    """The restriction that `key=value` pairs, separated by commas, stand for.

    Raises RequestError or SpecError, which name the field, the value and what is allowed.

    >>> parsed("tp=8,pp=2").given
    {'tp': 8, 'pp': 2}
    """
    return Restriction.model_validate(pairs(text, "--why-not"))


def pairs(text: str, flag: str) -> dict[str, Any]:
    """The values by field of `tp=8,pp=2`: numbers, truth values and words. Raises RequestError, which names the flag.

    >>> pairs("tp=8, recompute=full", "check")
    {'tp': 8, 'recompute': 'full'}
    """
    values: dict[str, Any] = {}
    for pair in text.split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not name or not value:
            message = f"{flag} must be field=value pairs such as tp=8,pp=2, got {text!r}"
            raise RequestError(message)
        if values.setdefault(name, _literal(value)) != _literal(value):
            message = f"{flag} gives {name} twice: {_written(values[name])} and {value}"
            raise RequestError(message)
    return values


def restricted(request: PlanRequest, restriction: Restriction) -> PlanRequest:
    """The request, held to the values of the restriction."""
    columns = restriction.given
    recipe = request.recipe
    if restriction.sequence_parallel is not None:
        recipe = recipe.replaced(sequence_parallel=restriction.sequence_parallel)
    for name, table in (("cp_type", CONTEXT_TYPES), ("rank_order", RANK_ORDERS), ("schedule", SCHEDULES)):
        if name in columns:
            columns[name] = table.index(columns[name])
    zero_stage, recompute = (columns.pop(name, None) for name in ("zero_stage", "recompute"))
    return request.replaced(
        recipe=recipe,
        fixed={name: int(value) for name, value in columns.items()},
        schedules=_schedules(request, restriction),
        zero_stage=zero_stage,
        recompute=recompute,
    )


def _schedules(request: PlanRequest, restriction: Restriction) -> tuple[str, ...]:
    """What is searched: the schedule asked for, or those that have groups or slices; else what the request does."""
    name = restriction.schedule
    if restriction.group_size and name in (None, *GROUPED):
        return (FLEXIBLE,)
    if name is None and (restriction.slices or 1) > 1:
        return SLICED
    return (name,) if name else request.schedules


def has(document: PlanDocument, restriction: Restriction) -> bool:
    """Whether a plan has the values already, on every stage."""
    layout, stages = document.parallelism, document.stages
    given = restriction.given
    zero_stage, recompute = (given.pop(name, None) for name in ("zero_stage", "recompute"))
    return (
        all(getattr(layout, name) == value for name, value in given.items())
        and all(zero_stage in (None, stage.zero_stage) for stage in stages)
        and all(recompute in (None, _recompute_kind(stage)) for stage in stages)
    )


def _recompute_kind(stage: Stage) -> str:
    """none, selective or full; a stage that recomputes a part of its layers in full is none of them."""
    if not stage.recompute.set:
        return "none"
    if stage.recompute.set != ("full",):
        return "selective"
    return "full" if stage.recompute.layers == stage.layers else "some layers in full"


def _literal(value: str) -> Any:
    """A number or a truth value, or the plain text that it is."""
    try:
        return json.loads(value)
    except ValueError:
        return value


def _written(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)

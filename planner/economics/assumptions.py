"""What days, money, energy and goodput rest on beside the plan: every figure with its default and where it is from."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field

from cost_models.specs import catalog
from cost_models.specs.base import NonNegativeFloat, PositiveFloat, PositiveInt, Spec, frozen
from cost_models.specs.errors import did_you_mean
from cost_models.specs.units import format_tokens, parse_count
from planner.errors import RequestError

__all__ = ["ANY_GPU", "HOUR_S", "Economy"]

HOUR_S, DAY_S = 3600.0, 86_400.0
ANY_GPU = "any"
"""Stands for every GPU that has no price of its own."""
# Llama 3 405B: 419 unexpected interruptions in 54 days on 16,384 GPUs.
LLAMA3_FAILURES_PER_GPU_DAY = 419 / (54 * 16_384)

Share = Annotated[NonNegativeFloat, Field(le=1)]
Factor = Annotated[PositiveFloat, Field(ge=1)]


class Economy(Spec):
    """What is assumed of a run beside its plan. `sentences` tells all of it; every field can be set."""

    label: ClassVar[str] = "assume"

    tokens: PositiveInt | None = Field(None, description="tokens of the whole run; none: nothing is added up to a run")
    days: PositiveFloat | None = Field(None, description="days that the run may take; none: no deadline")
    price_usd_per_gpu_hour: Annotated[Mapping[str, PositiveFloat], AfterValidator(frozen)] = Field(
        {}, description="dollars for an hour of one GPU, by GPU; none: no cost in money"
    )
    node_power_factor: Factor = Field(1.5, description="power of a node over the power limits of its GPUs")
    pue: Factor = Field(1.1, description="power of the site over the power of its nodes")
    failures_per_gpu_day: NonNegativeFloat = Field(
        LLAMA3_FAILURES_PER_GPU_DAY, description="interruptions of the job for each GPU and day"
    )
    restart_s: NonNegativeFloat = Field(
        600.0, description="from an interruption to the first step again, without reading the checkpoint"
    )
    storage_bandwidth_bytes_per_s_per_node: PositiveFloat = Field(
        1e9, description="what one node writes to storage or reads from it while all do"
    )
    storage_bandwidth_bytes_per_s: PositiveFloat = Field(2e12, description="what storage takes from all nodes together")
    checkpoint_stall: Share = Field(1.0, description="share of writing a checkpoint that training waits for")
    checkpoint_every_s: PositiveFloat | None = Field(
        None, description="seconds of training between checkpoints; none: the interval that loses least (Daly)"
    )
    node_loss_share: Share = Field(0.78, description="share of interruptions that take a node out of service")
    repair_s: NonNegativeFloat = Field(DAY_S, description="until a node that was taken out is back")
    spare_confidence: Annotated[PositiveFloat, Field(lt=1)] = Field(
        0.99, description="share of the time that spare nodes replace all nodes under repair"
    )
    pay_for_spares: Annotated[bool, Field(strict=True)] = Field(
        False, description="whether GPU-hours, cost and energy count the spare nodes, too"
    )

    @classmethod
    def of(
        cls,
        tokens: str | int | None = None,
        days: float | None = None,
        price: str | float | Mapping[str, float] | None = None,
        assume: Sequence[str] | Mapping[str, Any] = (),
    ) -> Self:
        """The assumptions that flags or keywords stand for. Raises RequestError or SpecError, which name the flag."""
        fields: dict[str, Any] = dict(assume) if isinstance(assume, Mapping) else dict(map(_assumption, assume))
        if tokens is not None:
            fields["tokens"] = parse_count(str(tokens), "--tokens", budget=True)
        if days is not None:
            fields["days"] = days
        if price is not None:
            fields["price_usd_per_gpu_hour"] = _prices(price)
        return cls(**fields)

    def price_of(self, gpu: str) -> float | None:
        """Dollars for an hour of one GPU; None where no price is known."""
        return self.price_usd_per_gpu_hour.get(gpu, self.price_usd_per_gpu_hour.get(ANY_GPU))

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each assumption: what it is, its value, and where the default is from."""
        return tuple(_sentence(self, name) for name in type(self).model_fields)


SOURCES = {
    "node_power_factor": "8.4 kW measured at the most on a node of eight H100 (Latif et al. 2024; from memory)",
    "pue": "what the largest operators report for their fleets; the industry's average is above 1.5 (from memory)",
    "failures_per_gpu_day": "419 unexpected interruptions in 54 days on 16,384 GPUs (Llama 3, 3.3.4)",
    "restart_s": "assumed; under 16.7 min, for Llama 3 trained over 90 % of 54 days with 466 interruptions",
    "storage_bandwidth_bytes_per_s_per_node": "2 TB/s for the 2,048 nodes of 16,384 GPUs (Llama 3, 3.3.1)",
    "storage_bandwidth_bytes_per_s": "2 TB/s sustained (Llama 3, 3.3.1)",
    "checkpoint_stall": "training waits for all of it; less where checkpoints are written beside training",
    "node_loss_share": "about 78 % of the unexpected interruptions were hardware (Llama 3, 3.3.4)",
    "repair_s": "assumed",
    "spare_confidence": "assumed",
    "pay_for_spares": "assumed",
}
"""Where defaults are from, by field; those that stand for nothing given have none."""


def _sentence(economy: Economy, name: str) -> str:
    value, field = getattr(economy, name), Economy.model_fields[name]
    source = f" ({SOURCES[name]})" if name in SOURCES and value == field.default else ""
    what = str(field.description).partition("; none:")
    return f"{name} = {_shown(name, value)}: {field.description if _is_none(value) else what[0]}{source}."


def _shown(name: str, value: Any) -> str:
    if _is_none(value):
        return "none"
    if isinstance(value, Mapping):
        return ", ".join(f"{gpu} {price:g}" for gpu, price in value.items())
    if name == "tokens":
        return format_tokens(value)
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:,.6g}" if 0.01 <= abs(value) < 1e7 else f"{value:.4g}"


def _is_none(value: Any) -> bool:
    return value is None or value == {}


def _assumption(text: str) -> tuple[str, Any]:
    """The field and the value in a text such as `pue=1.2`. Raises RequestError."""
    name, equals, value = (part.strip() for part in text.partition("="))
    allowed = tuple(Economy.model_fields)
    if not equals or name not in allowed:
        hint = did_you_mean(name, allowed)
        message = f"--assume must be NAME=VALUE with one of {', '.join(allowed)}, got {text!r}{hint}"
        raise RequestError(message)
    if name == "price_usd_per_gpu_hour":
        return name, _prices(value)
    if name == "tokens":
        return name, parse_count(value, "--assume tokens", budget=True)
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


def _prices(price: str | float | Mapping[str, float]) -> dict[str, float]:
    """Dollars an hour by GPU, of a number for all of them or of pairs such as `h100-sxm=2.5,b200=4.0`."""
    if isinstance(price, Mapping):
        return {gpu if gpu == ANY_GPU else catalog.load_gpu(gpu).name: float(each) for gpu, each in price.items()}
    found: dict[str, float] = {}
    for part in str(price).split(","):
        gpu, equals, value = part.rpartition("=")
        name = catalog.load_gpu(gpu.strip()).name if equals else ANY_GPU
        if name in found:
            message = f"--price names {name} twice, got {price!r}"
            raise RequestError(message)
        found[name] = _dollars(value, str(price))
    return found


def _dollars(value: str, price: str) -> float:
    try:
        dollars = float(value)
    except ValueError:
        dollars = -1.0
    if not 0 < dollars < 1e9:
        message = f"--price must be dollars for an hour of one GPU, 2.5 or h100-sxm=2.5,b200=4.0, got {price!r}"
        raise RequestError(message)
    return dollars

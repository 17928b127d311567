"""`--sweep KEY=VALUES`: the inputs of a study's scenarios, each written as planning itself takes it.

VALUES are values with commas between, or ranges: `8k..128k:x2` doubles, `64..256:+64` adds. A key is a flag of planning
without its dashes or a field as `--set` names it. Where one value is several names (schedules), `+` joins them.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any

from cost_models.specs.errors import SpecError, did_you_mean
from cost_models.specs.units import parse_bytes, parse_count
from planner.errors import RequestError
from planner.overrides import ROOTS

__all__ = ["KEYS", "Axis", "axes_of", "axis", "count", "scenarios"]

KEYS = {
    "model": "model",
    "gpus": "gpus",
    "mem": "mem",
    "gpu": "gpu",
    "cluster": "cluster",
    "nodes": "nodes",
    "gpus-per-node": "gpus_per_node",
    "profile": "profile",
    "seq-len": "seq_len",
    "global-batch": "global_batch",
    "global-batch-tokens": "global_batch_tokens",
    "recipe": "recipe",
    "target": "target",
    "schedule": "schedule",
    "precision": "precision",
    "optimizer": "optimizer",
    "search": "search",
    "gap": "gap",
    "time-limit": "time_limit_s",
    "top-k": "top_k",
}
"""Flags of planning that can be swept, and their keywords of `planner.request.build_request`."""
LISTS = ("schedule", "search")  # of which one value is several names
NUMBERS = {"gap": float, "time-limit": float, "top-k": int}  # that the command line reads before planning does
MOST_VALUES = 10_000


@dataclass(frozen=True)
class Axis:
    """One input that is swept, and its values in order, as they were written."""

    key: str
    values: tuple[str, ...]

    def keywords(self, value: str) -> dict[str, Any]:
        """What a value is to `build_request`: one keyword, or an override."""
        if self.key not in KEYS:
            return {"overrides": (f"{self.key}={value}",)}
        text: Any = value.replace("+", ",") if self.key in LISTS else value
        if self.key in NUMBERS:
            text = _number(self.key, value)
        return {KEYS[self.key]: text}


def axes_of(texts: Sequence[str]) -> tuple[Axis, ...]:
    """The axes of several `KEY=VALUES`. Raises RequestError for a key twice, and as `axis` does."""
    found: dict[str, Axis] = {}
    for text in texts:
        key, equals, values = (part.strip() for part in text.partition("="))
        if not equals:
            message = f"--sweep must be KEY=VALUES such as gpus=64,128 or seq-len=8k..128k:x2, got {text!r}"
            raise RequestError(message)
        each = axis(key, values)
        if each.key in found:
            message = f"--sweep {each.key} is given twice: put all its values into one, {each.key}=A,B"
            raise RequestError(message)
        found[each.key] = each
    return tuple(found.values())


def axis(key: str, values: str | Sequence[Any]) -> Axis:
    """The axis of a key and its values, a text or a sequence. Values that are written alike are taken once.

    Raises RequestError for an unknown key, no values, and a range that is not one.
    """
    key = key.strip().removeprefix("--")
    dashed = key.replace("_", "-")
    key = dashed if dashed in KEYS else key
    if key not in KEYS and not (key.split(".")[0] in ROOTS and "." in key):
        hint = did_you_mean(dashed, tuple(KEYS))
        known = ", ".join(KEYS)
        message = f"--sweep must name one of {known}, or a field such as workload.expert_imbalance, got {key!r}{hint}"
        raise RequestError(message)
    parts = values.split(",") if isinstance(values, str) else [str(value) for value in values]
    found = [value for part in parts for value in _values(key, part.strip())]
    if not found or not all(found):
        message = f"--sweep {key} must have values with commas between, got {values!r}"
        raise RequestError(message)
    return Axis(key, _checked_count(key, tuple(dict.fromkeys(found))))


def _values(key: str, text: str) -> Iterator[str]:
    """The values of one part of a list: itself, or those of a range."""
    if ".." not in text or "/" in text:  # a path may hold two dots
        yield text
        return
    shape = f"--sweep {key} must have ranges such as 8k..128k:x2 or 64..256:+64, got {text!r}"
    ends, colon, step = text.partition(":")
    low, _, high = ends.partition("..")
    if not colon:
        message = f"{shape}; without a step nothing is between its ends"
        raise RequestError(message)
    first, last = _amount(key, low, shape), _amount(key, high, shape)
    if last < first:
        message = f"--sweep {key} must have ranges that ascend, got {text!r}; did you mean {high}..{low}:{step}?"
        raise RequestError(message)
    sign, by = step.strip()[:1], step.strip()[1:]
    if sign not in ("x", "+") or not by:
        raise RequestError(shape)
    amount = _factor(by, shape) if sign == "x" else _amount(key, by, shape)
    if amount <= (1 if sign == "x" else 0):
        message = f"{shape}; the step must lead upwards"
        raise RequestError(message)
    yield from _walked(first, last, sign, amount, key)


def _walked(first: Decimal, last: Decimal, sign: str, amount: Decimal, key: str) -> Iterator[str]:
    """The values from the first up to the last, as planning reads them."""
    value, steps = first, 0
    while value <= last and steps <= MOST_VALUES:
        written = format(value.normalize(), "f")
        yield f"{written}B" if key == "mem" else written
        value = value * amount if sign == "x" else value + amount
        steps += 1


def _amount(key: str, text: str, shape: str) -> Decimal:
    """An end of a range in plain units: bytes of memory, tokens of a length, a number of anything else."""
    try:
        if key == "mem":
            return Decimal(parse_bytes(text.strip(), f"--sweep {key}").bytes)
        if key in ("seq-len", "global-batch-tokens"):
            return Decimal(parse_count(text.strip(), f"--sweep {key}"))
    except SpecError as error:
        raise RequestError(str(error)) from None
    return _factor(text, shape)


def _factor(text: str, shape: str) -> Decimal:
    try:
        value = Decimal(text.strip())
    except ArithmeticError:
        raise RequestError(shape) from None
    if not value.is_finite():
        raise RequestError(shape)
    return value


def _number(key: str, value: str) -> float | int:
    try:
        return int(value) if NUMBERS[key] is int else float(value)
    except ValueError:
        message = f"--sweep {key} must have numbers, got {value!r}"
        raise RequestError(message) from None


def _checked_count(key: str, values: tuple[str, ...]) -> tuple[str, ...]:
    if len(values) > MOST_VALUES:
        message = f"--sweep {key} must have at most {MOST_VALUES:,} values, got more"
        raise RequestError(message)
    return values


def count(axes: Sequence[Axis]) -> int:
    """Scenarios of the axes: every value with every other."""
    return math.prod(len(each.values) for each in axes)


def scenarios(axes: Sequence[Axis], flags: Mapping[str, Any]) -> Iterator[tuple[dict[str, str], dict[str, Any]]]:
    """Every scenario in order, the last axis fastest: its values by key, and its keywords of `build_request`."""
    for values in product(*(each.values for each in axes)):
        keywords = dict(flags)
        for each, value in zip(axes, values, strict=True):
            given = each.keywords(value)
            if "overrides" in given:
                given = {"overrides": (*keywords.get("overrides", ()), *given["overrides"])}
            keywords |= given
        yield dict(zip((each.key for each in axes), values, strict=True)), keywords

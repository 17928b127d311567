"""`--set spec.field=value`: changes to single fields of the specs, checked like everything else."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from cost_models.specs.base import Spec
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import did_you_mean
from cost_models.specs.model import ModelSpec
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.errors import RequestError

Changed = TypeVar("Changed", bound=Spec)

ROOTS = tuple(spec.label for spec in (ModelSpec, ClusterSpec, WorkloadSpec, FrameworkRecipe, HardwareProfile))


@dataclass(frozen=True)
class Override:
    """One change: the spec's label, the steps to the field, and the value."""

    root: str
    steps: tuple[str, ...]
    value: Any
    text: str


@dataclass(frozen=True)
class Overrides:
    """The changes of one command, in the order given; a later one wins."""

    items: tuple[Override, ...]

    @classmethod
    def parse(cls, texts: Sequence[str]) -> "Overrides":
        """The changes in texts such as `model.layers=4`. Raises RequestError."""
        return cls(tuple(_parsed(text) for text in texts))

    def applied(self, spec: Changed) -> Changed:
        """The spec with the changes that name it. Raises RequestError or SpecError."""
        changes = [item for item in self.items if item.root == spec.label]
        if not changes:
            return spec
        data = spec.model_dump(mode="json")
        for item in changes:
            _put(data, item)
        return type(spec).model_validate(data)

    def sentences(self) -> tuple[str, ...]:
        """One sentence for each change."""
        return tuple(f"Set by hand: {item.text}." for item in self.items)


def _parsed(text: str) -> Override:
    path, equals, value = (part.strip() for part in text.partition("="))
    root, *steps = path.split(".")
    if not equals or not all(steps) or not steps:
        message = f"--set must be spec.field=value such as model.layers=4, got {text!r}"
        raise RequestError(message)
    if root not in ROOTS:
        message = f"--set {text}: '{root}' is none of {', '.join(ROOTS)}{did_you_mean(root, ROOTS)}"
        raise RequestError(message)
    return Override(root, tuple(steps), _literal(value), f"{path}={value}")


def _literal(value: str) -> Any:
    """The value as JSON, or as the plain text that it is."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _put(data: Any, item: Override) -> None:
    """Writes the value into nested tables and lists; a field that is new to a table is left for the spec to judge."""
    *parents, last = item.steps
    for step in parents:
        data = data[_existing(data, step, item)]
    data[last if isinstance(data, dict) else _existing(data, last, item)] = item.value


def _existing(data: Any, step: str, item: Override) -> str | int:
    """The key or index that a step means. Raises RequestError when there is none."""
    keys = {
        str(key): key for key in (data if isinstance(data, dict) else range(len(data) if isinstance(data, list) else 0))
    }
    if step in keys:
        return keys[step]
    allowed = f"one of {', '.join(keys)}" if keys else "nothing: it is a single value"
    message = f"--set {item.text}: no '{step}' there, allowed is {allowed}"
    raise RequestError(message)

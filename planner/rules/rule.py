"""What a rule is: one condition on named values, and the words that explain it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

__all__ = ["SCOPES", "Rule", "Scope", "Values", "divides", "nearest_divisors"]

Values = Mapping[str, Any]
Scope = Literal["mesh", "layout", "split", "stage", "plan"]

# What a rule reads, beside facts of the job: tp, cp, pp, dp and sequence parallelism; all of the layout; also the
# number of layers of a stage; also the choices of a stage; what stages have in common.
SCOPES: tuple[Scope, ...] = ("mesh", "layout", "split", "stage", "plan")


@dataclass(frozen=True)
class Rule:
    """One condition: `legal` for every plan, or what plans must obey that a launcher is to `express`.

    `field` is the field of a plan that it judges.
    `holds` is true (elementwise) where it is obeyed, `message` says of one configuration what is wrong and what is
    near; both read values by name, those of `scope` at most. `versions` are the launcher's, as far as known.
    """

    id: str
    kind: Literal["legal", "express"]
    launcher: str
    versions: str
    field: str
    scope: Scope
    what: str
    why: str
    holds: Callable[[Values], Any]
    message: Callable[[Values], str]
    example: Values
    """A configuration that breaks it."""


def nearest_divisors(value: int, of: int) -> str:
    """The divisors of `of` next to `value`, as text: "4 or 8"."""
    divisors = [d for d in range(1, of + 1) if of % d == 0] if of <= 1_000_000 else [1]
    below = [d for d in divisors if d <= value][-1:]
    above = [d for d in divisors if d > value][:1]
    return " or ".join(str(d) for d in (*below, *above))


def divides(field: str, of: str) -> tuple[Callable[[Values], Any], Callable[[Values], str]]:
    """`holds` and `message` of the rule that one value divides another."""

    def holds(values: Values) -> Any:
        return np.mod(values[of], values[field]) == 0

    def message(values: Values) -> str:
        near = nearest_divisors(int(values[field]), int(values[of]))
        return f"{field} must divide {of} ({values[of]}), got {values[field]}; nearest: {near}"

    return holds, message

"""The base of every part of the document and the ranges that its fields share."""

import math
from collections.abc import Mapping
from typing import Annotated, ClassVar, TypeVar

from pydantic import AfterValidator, Field

from cost_models.specs.base import FrozenDict, NonNegativeFloat, NonNegativeInt, PositiveInt, Spec

Value = TypeVar("Value")

Seconds = NonNegativeFloat
Bytes = NonNegativeFloat
Fraction = Annotated[NonNegativeFloat, Field(le=1)]
FiniteFloat = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Degree = PositiveInt
Count = NonNegativeInt

# A document holds 9 significant digits, so sums and quotients of what was read back agree to about 1e-8.
AGREEMENT = 1e-6


def _frozen_by_key(table: Mapping[str, Value]) -> Mapping[str, Value]:
    return FrozenDict(sorted(table.items()))


# A table whose keys are not fields: sorted, so that the order in which it was filled does not show.
ByKey = Annotated[Mapping[str, Value], AfterValidator(_frozen_by_key)]


class Record(Spec):
    """A frozen part of the document: no unknown keys, no NaN or infinity. Raises SpecError like every spec."""

    label: ClassVar[str] = "document"


def agree(first: float, second: float) -> bool:
    """Whether two numbers of a document are the same up to its rounding."""
    return math.isclose(first, second, rel_tol=AGREEMENT, abs_tol=1e-12)


def check_band(name: str, low: float, value: float, high: float) -> None:
    """Nothing when low <= value <= high up to rounding; ValueError otherwise."""
    inside = (low <= value or agree(low, value)) and (value <= high or agree(value, high))
    if not inside:
        message = f"{name} must lie in its band [{low:.9g}, {high:.9g}], got {value:.9g}"
        raise ValueError(message)

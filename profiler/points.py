"""What is measured: an operator at some sizes, and what its repetitions came to."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from profiler.errors import JournalError

__all__ = ["Measured", "Point", "Timing", "dumps", "loads"]

VERSION = 1


@dataclass(frozen=True)
class Point:
    """An operator at some sizes. Equal points are the same work."""

    operator: str
    """As `kernels.KERNELS`, `links.COLLECTIVES` and `beside.BESIDE` name it."""
    sizes: tuple[int, ...]
    """Those that its seconds are a function of: rows, columns, inner of a product; bytes; bytes and ranks."""
    detail: tuple[int, ...] = ()
    """Sizes that its tensors need besides: the width of a row, key and value heads."""

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(f'{size:,}' for size in self.sizes)})"


@dataclass(frozen=True)
class Timing:
    """What the repetitions of a point came to on one rank."""

    median_s: float
    spread: float
    """Distance of the quartiles over the median."""
    repetitions: int
    """Those that count."""
    outliers: int = 0
    """Left out because they are far from the others."""
    interrupted: int = 0
    """Left out because another process had the processor meanwhile."""


@dataclass(frozen=True)
class Measured:
    """A point, and what it takes with all ranks at work."""

    point: Point
    seconds: float
    spread: float
    repetitions: int
    outliers: int = 0
    interrupted: int = 0
    throttled: bool = False
    """Whether the device was slower than at its best shortly before."""

    def with_another(self, other: "Measured") -> "Measured":
        """This and a later measurement of the same point as one: the mean of both, as wide as they lie apart.

        One that a slower device took does not count beside one that it did not.
        """
        if self.throttled != other.throttled:
            return other if self.throttled else self
        seconds = (self.seconds + other.seconds) / 2
        return Measured(
            self.point,
            seconds,
            max(self.spread, other.spread, abs(self.seconds - other.seconds) / seconds),
            self.repetitions + other.repetitions,
            self.outliers + other.outliers,
            self.interrupted + other.interrupted,
            self.throttled,
        )


def dumps(measured: Iterable[Measured], about: Mapping[str, Any]) -> str:
    """Finished measurements as text, with what they were measured for."""
    return json.dumps({"version": VERSION, "about": about, "measured": [asdict(one) for one in measured]}) + "\n"


def loads(text: str, about: Mapping[str, Any], source: str) -> list[Measured]:
    """The measurements in a text that `dumps` wrote.

    Raises JournalError when it holds something else, or measurements of another device or of another request.
    """
    try:
        kept = json.loads(text)
        version, of, rows = kept["version"], kept["about"], kept["measured"]
        found = [Measured(**{**row, "point": _point(row["point"])}) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        message = f"{source} does not hold measurements: {error}; remove it to start anew"
        raise JournalError(message) from error
    if version != VERSION or of != json.loads(json.dumps(about)):
        different = sorted(name for name in {*about, *of} if of.get(name) != json.loads(json.dumps(about)).get(name))
        message = (
            f"{source} holds measurements of another run (it differs in {', '.join(different) or 'its version'}); "
            "remove it to start anew, or give another --output"
        )
        raise JournalError(message)
    return found


def _point(row: Mapping[str, Any]) -> Point:
    return Point(row["operator"], tuple(row["sizes"]), tuple(row["detail"]))

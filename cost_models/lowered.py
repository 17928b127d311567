"""A lowered cost expression: numpy source text, its inputs and outputs, and the functions that it is bound to.

It knows no sympy, so that an expression read back from disk loads none.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import CodeType
from typing import Any

import numpy as np

__all__ = ["Lowered", "LoweringError", "Parted", "compiled", "namespace", "rebound"]

Columns = Mapping[str, Any]


class LoweringError(Exception):
    """An expression cannot be lowered (an operator is not bound, a function is not ours), or a column is missing."""


@dataclass(frozen=True)
class Lowered:
    """A numpy function of named columns.

    `inputs` are the names it reads, `outputs` the names it returns, `operations` the size of its expressions after
    common sub-expressions are shared, `source` the Python text that was compiled.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    operations: int
    source: str
    function: Callable[..., tuple[Any, ...]]

    def __call__(self, columns: Columns) -> dict[str, Any]:
        """Outputs by name, each an array as long as the columns (or a scalar when nothing it reads varies).

        Raises LoweringError when a column is missing.
        """
        missing = [name for name in self.inputs if name not in columns]
        if missing:
            msg = f"columns {missing} are missing; the expression reads {list(self.inputs)}"
            raise LoweringError(msg)
        return dict(zip(self.outputs, self.function(*(columns[name] for name in self.inputs)), strict=True))


@dataclass(frozen=True)
class Parted:
    """An expression in two steps, for rows that share most of their columns.

    `early` computes, once for each distinct row of the columns that it reads, what `late` reads beside columns that
    change from row to row.
    """

    early: Lowered
    late: Lowered

    @property
    def operations(self) -> int:
        """Size of the expressions of both steps."""
        return self.early.operations + self.late.operations

    def rebound(self, functions: Mapping[str, Callable[..., Any]]) -> "Parted":
        """The same expressions with their operators bound to other functions."""
        return Parted(rebound(self.early, functions), rebound(self.late, functions))


def rebound(lowered: Lowered, functions: Mapping[str, Callable[..., Any]]) -> Lowered:
    """The same expressions with their operators bound to other functions, which must have the same names."""
    return replace(lowered, function=compiled(lowered.source, namespace(functions)))


def namespace(functions: Mapping[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    """The functions that a lowered text may call: those that only choose or round, and the operators given."""
    chosen: dict[str, Callable[..., Any]] = {
        "at_least": _at_least,
        "maximum": np.maximum,
        "minimum": np.minimum,
        "ceiling": np.ceil,
    }
    return {**chosen, **functions}


def compiled(source: str, namespace: dict[str, Callable[..., Any]]) -> Callable[..., tuple[Any, ...]]:
    """The function of a lowered text, which finds the operators in `namespace`."""
    exec(_code_of(source), namespace)
    return namespace["_lowered"]


@lru_cache(maxsize=256)
def _code_of(source: str) -> CodeType:
    return compile(source, "<lowered cost expressions>", "exec")


def _at_least(value: Any, limit: Any) -> Any:
    """1.0 where `value` is `limit` or more, else 0.0."""
    return np.greater_equal(value, limit).astype(np.float64)

"""Evaluates a lowered function over columns, in chunks that stay in the processor's cache."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.lowered import Lowered

__all__ = ["CHUNK_ROWS", "distinct", "evaluate", "evaluate_distinct"]

# 128 KiB a column: the few dozen columns in use at a time stay within a few MiB of second- and third-level cache.
CHUNK_ROWS = 16_384
Array = NDArray[Any]


def evaluate(lowered: Lowered, columns: Mapping[str, Any], rows: int) -> dict[str, Array]:
    """Outputs by name as float64 arrays of length `rows`.

    A column is an array of length `rows` or a scalar. Columns become float64 first: 64-bit integers overflow without
    a word (2**32 * 2**32 is 0). Raises LoweringError when a column is missing.
    """
    wanted = {name: np.asarray(columns[name], dtype=np.float64) for name in lowered.inputs if name in columns}
    results = {name: np.empty(rows) for name in lowered.outputs}
    for start in range(0, rows, CHUNK_ROWS):
        window = slice(start, min(start + CHUNK_ROWS, rows))
        part = {name: column if column.ndim == 0 else column[window] for name, column in wanted.items()}
        for name, values in lowered(part).items():
            results[name][window] = values
    return results


def evaluate_distinct(
    lowered: Lowered, columns: Mapping[str, Any], rows: int, constants: Mapping[str, Any]
) -> dict[str, Array]:
    """Like `evaluate`, but computed once per distinct row of `columns` and gathered back to every row.

    For expressions whose operators are dear (table look-ups, collectives) and whose columns repeat: operator seconds
    depend on few of a candidate's fields.
    """
    values, index = distinct(lowered, columns, rows, constants)
    return {name: column[index] for name, column in values.items()}


def distinct(
    lowered: Lowered, columns: Mapping[str, Any], rows: int, constants: Mapping[str, Any]
) -> tuple[dict[str, Array], Array]:
    """The outputs for each distinct row of `columns`, and which of them each row is, int[rows]."""
    names = [name for name in lowered.inputs if name in columns]
    repeated = {name: np.broadcast_to(np.asarray(columns[name]), (rows,)) for name in names}
    first, inverse = _distinct_rows(list(repeated.values()), rows)
    few = {name: column[first] for name, column in repeated.items()}
    return evaluate(lowered, {**constants, **few}, len(first)), inverse


def _distinct_rows(columns: list[Array], rows: int) -> tuple[Array, Array]:
    """The first of each set of equal rows, and of which set each row is; one-dimensional sorts, column by column."""
    code = np.zeros(rows, dtype=np.int64)
    for column in columns:
        values, number = np.unique(column, return_inverse=True)
        _, code = np.unique(code * len(values) + number, return_inverse=True)
    _, first = np.unique(code, return_index=True)
    return first, code

"""Evaluates a lowered function over columns, in chunks that stay in the processor's cache."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.lowered import Lowered

__all__ = ["CHUNK_ROWS", "distinct", "evaluate", "evaluate_distinct", "evaluate_once"]

# 128 KiB a column: the few dozen columns in use at a time stay within a few MiB of second- and third-level cache.
CHUNK_ROWS = 16_384
# Whole numbers of a span of so many times the rows are told apart in a table of the span, wider ones are sorted.
SPAN_PER_ROW = 16
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
    values, index = evaluate_once(lowered, columns, rows, constants)
    return {name: column[index] for name, column in values.items()}


def evaluate_once(
    lowered: Lowered, columns: Mapping[str, Any], rows: int, constants: Mapping[str, Any]
) -> tuple[dict[str, Array], Array]:
    """The outputs for each distinct row of `columns`, and which of them each row is, int[rows]."""
    first, index = distinct(lowered.inputs, columns, rows)
    few = {name: np.broadcast_to(columns[name], (rows,))[first] for name in lowered.inputs if name in columns}
    return evaluate(lowered, {**constants, **few}, len(first)), index


def distinct(names: Iterable[str], columns: Mapping[str, Any], rows: int) -> tuple[Array, Array]:
    """The first of each set of rows that are equal in the named columns, and of which set each row is, int[rows].

    Sets are in the order of their values, column by column; of the names those count that there are.
    """
    code, span = np.zeros(rows, dtype=np.int64), 1
    for column in (np.asarray(columns[name]) for name in names if name in columns):
        number, size = _placed(column, rows)
        if span * size > SPAN_PER_ROW * rows:
            code, span = _numbered(code, span)
            number, size = _numbered(number, size)
        code, span = (code * size + number if size > 1 else code), span * size
    code, count = _numbered(code, span)
    first = np.empty(count, dtype=np.int64)
    first[code[::-1]] = np.arange(rows - 1, -1, -1)
    return first, code


def _placed(column: Array, rows: int) -> tuple[Array, int]:
    """Whole numbers from 0 in the order of the entries, equal where these are, and how many there may be."""
    if not rows or not column.ndim:
        return np.zeros(rows, dtype=np.int64), 1
    low, high = column.min(), column.max()
    if low == high:
        return np.zeros(rows, dtype=np.int64), 1
    if column.dtype.kind == "i" and high - low <= SPAN_PER_ROW * rows:
        return column - low, int(high - low) + 1
    values, number = np.unique(column, return_inverse=True)
    return number, len(values)


def _numbered(code: Array, span: int) -> tuple[Array, int]:
    """Of each whole number under `span` its place among the distinct ones, ascending, and how many these are."""
    if not len(code):
        return code, 0
    if span > SPAN_PER_ROW * len(code):  # sorted: a table of the span would be too long
        values, number = np.unique(code, return_inverse=True)
        return number, len(values)
    found = np.zeros(span, dtype=bool)
    found[code] = True
    number = np.cumsum(found) - 1
    return number[code], int(number[-1]) + 1

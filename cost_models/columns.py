"""Evaluates a lowered function over columns, in chunks that stay in the processor's cache."""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.lowered import Lowered

__all__ = ["CHUNK_ROWS", "distinct", "evaluate", "evaluate_distinct"]

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
    few, index = distinct(lowered.inputs, columns, rows)
    values = evaluate(lowered, {**constants, **few}, int(index.max(initial=-1)) + 1)
    return {name: column[index] for name, column in values.items()}


def distinct(names: Iterable[str], columns: Mapping[str, Any], rows: int) -> tuple[dict[str, Array], Array]:
    """Those of the named columns that there are, once for each distinct row of them, and which each row is, int[rows].

    Distinct rows are in the order of their values, column by column.
    """
    repeated = {name: np.broadcast_to(np.asarray(columns[name]), (rows,)) for name in names if name in columns}
    code, count = np.zeros(rows, dtype=np.int64), min(rows, 1)
    for column in repeated.values():
        number, size = _numbered(column)
        if size > 1:
            code, count = _numbered(code * size + number)
    first = np.empty(count, dtype=np.int64)
    first[code[::-1]] = np.arange(rows - 1, -1, -1)
    return {name: column[first] for name, column in repeated.items()}, code


def _numbered(column: Array) -> tuple[Array, int]:
    """Of each entry the number among the distinct ones, ascending, and how many these are."""
    if column.dtype.kind == "f" or not len(column):
        values, number = np.unique(column, return_inverse=True)
        return number, len(values)
    low, high = int(column.min()), int(column.max())
    if high - low > SPAN_PER_ROW * len(column):
        values, number = np.unique(column, return_inverse=True)
        return number, len(values)
    # Whole numbers in a narrow span are counted, not sorted.
    found = np.zeros(high - low + 1, dtype=bool)
    found[column - low] = True
    number = np.cumsum(found) - 1
    return number[column - low], int(number[-1]) + 1

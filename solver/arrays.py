"""Checked, read-only numpy columns: what every problem of this package is made of."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solver.errors import MalformedProblemError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]


def int_column(field: str, values: ArrayLike, length: int | None = None, below: int | None = None) -> IntArray:
    """Read-only int64[length] copy of `values`, every entry >= 0 and, where `below` is given, under it.

    Raises:
        MalformedProblemError: wrong shape, entries that are not whole numbers, or out of range.
    """
    found = np.asarray(values)
    _check_shape(field, found, length)
    if found.size and not np.issubdtype(found.dtype, np.integer):
        raise MalformedProblemError(field=field, found=f"dtype {found.dtype}", allowed="an array of integers")
    column = found.astype(np.int64)
    if column.size and column.min() < 0:
        raise MalformedProblemError(field=field, found=column.min(), allowed=">= 0")
    if column.size and below is not None and column.max() >= below:
        raise MalformedProblemError(field=field, found=column.max(), allowed=f"< {below}")
    column.flags.writeable = False
    return column


def float_column(
    field: str, values: ArrayLike, length: int | None = None, *, nonnegative: bool = False, finite: bool = True
) -> FloatArray:
    """Read-only float64[length] copy of `values`, without NaN, finite and nonnegative where asked.

    Raises:
        MalformedProblemError: wrong shape, or an entry that is not allowed.
    """
    column = np.array(values, dtype=np.float64)
    _check_shape(field, column, length)
    check_entries(field, column, nonnegative=nonnegative, finite=finite)
    column.flags.writeable = False
    return column


def check_entries(field: str, values: FloatArray, *, nonnegative: bool = False, finite: bool = True) -> None:
    """None; values of any shape are checked entry by entry.

    Raises:
        MalformedProblemError: an entry is NaN, or infinite where `finite`, or negative where `nonnegative`.
    """
    wrong = ~np.isfinite(values) if finite else np.isnan(values)
    if wrong.any():
        raise MalformedProblemError(
            field=field, found=values[wrong][0], allowed="finite" if finite else "a number, not NaN"
        )
    if nonnegative and values.size and values.min() < 0:
        raise MalformedProblemError(field=field, found=values.min(), allowed=">= 0")


def _check_shape(field: str, found: NDArray[np.generic], length: int | None) -> None:
    """None; `found` is one-dimensional and of the given length, or an error."""
    if found.ndim != 1:
        raise MalformedProblemError(field=field, found=f"shape {found.shape}", allowed="one-dimensional")
    if length is not None and len(found) != length:
        raise MalformedProblemError(
            field=field, found=f"{len(found)} entries", allowed=f"of the length of its problem, {length}"
        )

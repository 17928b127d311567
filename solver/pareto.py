"""Pareto fronts of many small groups of rows at once."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from solver.arrays import IntArray, check_entries
from solver.errors import MalformedProblemError

RankArray = NDArray[np.int32]


def front(values: ArrayLike, groups: ArrayLike | None = None) -> IntArray:
    """Row numbers int[k], ascending, of the rows that no other row of their group dominates.

    A row dominates another when it is no larger in every dimension and smaller in one. Of rows equal in every
    dimension the first is kept.

    Args:
        values: float[n, d], every dimension minimised; infinities are allowed.
        groups: int[n], the group of each row; one group when None.

    Raises:
        MalformedProblemError: `values` is not a matrix or holds NaN, or `groups` is not int[n].

    >>> front([[1.0, 2.0], [2.0, 1.0], [2.0, 2.0]]).tolist()
    [0, 1]
    """
    matrix = np.asarray(values, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise MalformedProblemError(
            field="values", found=f"shape {matrix.shape}", allowed="of shape [n, d] with d >= 1"
        )
    check_entries("values", matrix, finite=False)
    group = _group_numbers(groups, len(matrix))
    if len(matrix) == 0:
        return np.empty(0, dtype=np.int64)
    # A column that is the same for all tells nothing apart, nor does one that ranks all rows as another does.
    varying = matrix[:, matrix.min(axis=0) < matrix.max(axis=0)].T
    different = {rank.tobytes(): rank for rank in map(_dense_rank, varying)}
    ranks = list(different.values()) or [np.zeros(len(matrix), dtype=np.int32)]
    kept = _front_of_pairs(ranks, group) if len(ranks) <= 2 else _front_of_rows(ranks, group)
    return np.sort(kept)


def _group_numbers(groups: ArrayLike | None, rows: int) -> IntArray:
    """Group of each row as int64[rows], numbered densely from 0."""
    if groups is None:
        return np.zeros(rows, dtype=np.int64)
    found = np.asarray(groups)
    if found.shape != (rows,) or (rows and not np.issubdtype(found.dtype, np.integer)):
        raise MalformedProblemError(field="groups", found=f"{found.dtype}{list(found.shape)}", allowed=f"int[{rows}]")
    return np.unique(found, return_inverse=True)[1].astype(np.int64)


def _dense_rank(column: NDArray[np.float64]) -> RankArray:
    """Rank of each entry among the distinct entries of its column: exact sums, and half the memory of floats."""
    return np.unique(column, return_inverse=True)[1].astype(np.int32)


def _front_of_pairs(ranks: list[RankArray], group: IntArray) -> IntArray:
    """Kept rows for one or two dimensions: sorted by the first, a row survives if it lowers the second."""
    first, second = ranks[0], ranks[-1]
    order = np.lexsort((second, first, group))
    # Later groups get keys below all of the earlier ones, so that one running minimum serves every group.
    key = second[order].astype(np.int64) - group[order] * (int(second.max()) + 1)
    lowest_before = np.minimum.accumulate(key)[:-1]
    survives = np.ones(len(key), dtype=bool)
    survives[1:] = key[1:] < lowest_before
    return order[survives]


def _front_of_rows(ranks: list[RankArray], group: IntArray) -> IntArray:
    """Kept rows for three dimensions and more, one round a member of the largest front.

    A dominating row has the smaller sum of ranks, so the head of each group, sorted by that sum, is on the front;
    each round keeps the heads and drops all that they dominate or equal.
    """
    total = np.sum(ranks, axis=0, dtype=np.int64)
    order = np.lexsort((total, group))
    columns, group = [rank[order] for rank in ranks], group[order]
    kept: list[IntArray] = []
    while len(order):
        starts = np.flatnonzero(np.r_[True, group[1:] != group[:-1]])
        kept.append(order[starts])
        sizes = np.diff(np.r_[starts, len(order)])
        dominated = np.ones(len(order), dtype=bool)
        for column in columns:
            dominated &= column >= np.repeat(column[starts], sizes)
        left = np.flatnonzero(~dominated)
        order, group, columns = order[left], group[left], [column[left] for column in columns]
    return np.concatenate(kept)

"""Values between the nodes of a lattice: multilinear in the logarithms of the sizes, and of the value itself.

A power of the sizes is met exactly, and what is monotone from node to node is monotone between them. Beyond the lattice
the value of its border holds.
"""

from collections.abc import Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["LogLattice", "corners"]

Array = NDArray[np.float64]


class LogLattice:
    """Positive values on a lattice of sizes, float[len(axis) for each axis], as a vectorised function of sizes."""

    def __init__(self, axes: Sequence[ArrayLike], values: ArrayLike) -> None:
        self._axes = [np.log(np.asarray(axis, dtype=np.float64)) for axis in axes]
        shape = tuple(len(axis) for axis in self._axes)
        self._logarithms = np.log(np.asarray(values, dtype=np.float64)).reshape(shape).ravel()
        self._strides = [int(np.prod(shape[index + 1 :])) for index in range(len(shape))]

    def __call__(self, *sizes: Any) -> Array:
        """The value at sizes that broadcast against each other; sizes under 1 count as 1."""
        base: Any = 0
        weights = []
        for axis, stride, size in zip(self._axes, self._strides, sizes, strict=True):
            low, weight = _place(axis, size)
            base = base + low * stride
            weights.append(weight)
        value: Array = np.exp(self._between(base, weights, 0))
        return value

    def _between(self, base: Any, weights: list[Array], depth: int) -> Any:
        """The interpolated logarithm, one axis after the other, the innermost first."""
        if depth == len(weights):
            return self._logarithms.take(base)
        low = self._between(base, weights, depth + 1)
        if len(self._axes[depth]) == 1:  # one value for every size
            return low
        high = self._between(base + self._strides[depth], weights, depth + 1)
        return low + weights[depth] * (high - low)


def corners(axes: Sequence[ArrayLike], sizes: Sequence[ArrayLike]) -> tuple[NDArray[np.int64], Array]:
    """Flat nodes round each point, int[points, 2**axes] (axes of several nodes), and weights, which add up to 1."""
    logarithms = [np.log(np.asarray(axis, dtype=np.float64)) for axis in axes]
    places = [_place(axis, np.asarray(size)) for axis, size in zip(logarithms, sizes, strict=True)]
    shape = tuple(len(axis) for axis in logarithms)
    nodes, weights = [], []
    for sides in product(*((0, 1) if count > 1 else (0,) for count in shape)):
        index = [low + side for (low, _), side in zip(places, sides, strict=True)]
        nodes.append(np.ravel_multi_index(index, shape))
        share = [weight if side else 1.0 - weight for (_, weight), side in zip(places, sides, strict=True)]
        weights.append(np.prod(share, axis=0))
    return np.stack(nodes, axis=1), np.stack(weights, axis=1)


def _place(axis: Array, size: Any) -> tuple[Any, Array]:
    """The node below a size, the last but one at most (or the only one), and how far it is to the next, 0 to 1."""
    position = np.interp(np.log(np.maximum(size, 1.0)), axis, np.arange(len(axis), dtype=np.float64))
    low = np.minimum(position.astype(np.int64), max(len(axis) - 2, 0))
    return low, position - low

"""A smooth surface of shares through measured ones, such that more work never takes less time.

The surface is multilinear in logarithms between the nodes of a lattice. Its logarithm is the least-squares fit to the
measured ones with a penalty on second differences along every axis, which levels single bad rows and the saw teeth of
wave quantisation. Time is then made to rise along every axis by a small slope at least, so that rounding cannot undo
it: the mean of the lowest rising surface above and the highest below.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from cost_models.interpolation import LogLattice, corners

Array = npt.NDArray[np.float64]
Axes = Sequence[Array]

SMOOTHNESS = 0.03  # from cross-validation: 0.003 to 0.1 are within half a point of each other
LEAST_RISE = 0.01  # of the logarithm of time from node to node
FOLDS = 5


def fitted(axes: Axes, sizes: Axes, shares: Array, weights: Array, smoothness: float = SMOOTHNESS) -> Array:
    """Return the shares at the nodes of `axes`, float[len(axis) for each], of the smooth monotone surface."""
    nodes, parts = corners(axes, sizes)
    normal = smoothness * _penalty(axes)
    for left in range(nodes.shape[1]):
        for right in range(nodes.shape[1]):
            np.add.at(normal, (nodes[:, left], nodes[:, right]), weights * parts[:, left] * parts[:, right])
    wanted = np.zeros(len(normal))
    np.add.at(wanted, nodes, (weights * np.log(shares))[:, None] * parts)
    normal[np.diag_indices_from(normal)] += 1e-9
    logarithms = np.linalg.solve(normal, wanted).reshape([len(axis) for axis in axes])
    most = shares[weights == weights.max()].max()  # no extrapolation past the best that was measured
    return monotone(axes, np.minimum(np.exp(logarithms), most))


def monotone(axes: Axes, shares: Array) -> Array:
    """Return the shares changed so that work / share rises along every axis."""
    work: Array = sum(np.meshgrid(*(np.log(axis) for axis in axes), indexing="ij"), start=np.zeros(()))
    least = LEAST_RISE * sum(np.indices(shares.shape))
    time = work - np.log(shares) - least
    above = below = time
    for axis in range(time.ndim):
        above = np.maximum.accumulate(above, axis=axis)
        below = np.flip(np.minimum.accumulate(np.flip(below, axis), axis=axis), axis)
    return np.exp(work - (above + below) / 2 - least)


def held_out(fit: Callable[[npt.NDArray[np.bool_]], Array], points: int) -> Array:
    """Return a prediction of every point by a fit that did not see it: `fit` takes the mask of those it may see."""
    fold = np.random.default_rng(0).integers(0, FOLDS, points)
    predicted = np.empty(points)
    for index in range(FOLDS):
        unseen = fold == index
        predicted[unseen] = fit(~unseen)[unseen]
    return predicted


def at(axes: Axes, shares: Array, sizes: Axes) -> Array:
    """Return the shares of a surface at some sizes."""
    return LogLattice(axes, shares)(*sizes)


def rounded(shares: Array) -> list[float]:
    """Return the shares, last axis fastest, to four significant digits."""
    return [float(f"{share:.4g}") for share in shares.ravel()]


def _penalty(axes: Axes) -> Array:
    """The matrix of the sum of squared second differences along every axis."""
    nodes = int(np.prod([len(axis) for axis in axes]))
    total: Array = np.zeros((nodes, nodes))
    for index in range(len(axes)):
        product: Array = np.ones((1, 1))
        for other, axis in enumerate(axes):
            bends = _second_differences(np.log2(axis))
            product = np.asarray(np.kron(product, bends.T @ bends if other == index else np.eye(len(axis))), np.float64)
        total += product
    return total


def _second_differences(places: Array) -> Array:
    """Changes of slope at the inner nodes, float[nodes - 2, nodes]."""
    matrix = np.zeros((max(len(places) - 2, 0), len(places)))
    for row, (before, after) in enumerate(pairwise(np.diff(places))):
        matrix[row, row : row + 3] = (1 / before, -1 / before - 1 / after, 1 / after)
    return matrix

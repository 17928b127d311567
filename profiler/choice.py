"""Which point to measure next: where interpolation errs most.

Seconds are taken for a power of the sizes, with what is left over interpolated from the nearest points. Leaving out
each measured point in turn says how far this errs there; the next point is the one that is far from all measured ones,
near those that are met badly.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from profiler.points import Measured, Point

__all__ = ["coarse", "left_out_errors", "most_uncertain"]

Array = NDArray[np.float64]
# What interpolation is taken to err even where all measured points are met.
LEAST_ERROR = 0.02
NEIGHBOURS = 3
RIDGE = 1e-6


def coarse(candidates: Sequence[Point], count: int) -> list[Point]:
    """A few candidates that lie as far apart as can be: the smallest, the largest, then the farthest from all."""
    if len(candidates) <= count:
        return list(candidates)
    places = _places(candidates)
    total = places.sum(axis=1)
    chosen = [int(total.argmax()), int(total.argmin())][:count]
    while len(chosen) < count:
        chosen.append(int(_distances(places, places[chosen]).min(axis=1).argmax()))
    return [candidates[index] for index in dict.fromkeys(chosen)]


def most_uncertain(candidates: Sequence[Point], measured: Sequence[Measured]) -> tuple[Point, float] | None:
    """The candidate not measured yet where interpolation is expected to err most, and by which part of its seconds."""
    done = {one.point for one in measured}
    left = [point for point in candidates if point not in done]
    if not left or not measured:
        return (left[0], 1.0) if left else None
    every = _places([*left, *(one.point for one in measured)])
    places, known = every[: len(left)], every[len(left) :]
    distances = _distances(places, known)
    errors = left_out_errors(measured)
    nearest = np.argsort(distances, axis=1)[:, :NEIGHBOURS]
    expected = (LEAST_ERROR + errors[nearest].mean(axis=1)) * np.minimum(1.0, distances.min(axis=1))
    best = int(expected.argmax())
    return left[best], float(expected[best])


def left_out_errors(measured: Sequence[Measured]) -> Array:
    """|predicted / measured - 1| of each point by the others, float[points]; 1 where there are too few."""
    if len(measured) < 3:
        return np.ones(len(measured))
    places = _places([one.point for one in measured])
    seconds = np.log([one.seconds for one in measured])
    errors = np.empty(len(measured))
    for index in range(len(measured)):  # a few dozen points, each a fit of a few numbers
        others = np.arange(len(measured)) != index
        predicted = _predicted(places[others], seconds[others], places[index])
        errors[index] = abs(np.expm1(predicted - seconds[index]))
    return np.minimum(errors, 1.0)


def _predicted(places: Array, seconds: Array, place: Array) -> float:
    """The logarithm of the seconds at a place: a power of the sizes, and the nearest points' distance from it."""
    design = np.column_stack([np.ones(len(places)), places])
    normal = design.T @ design + RIDGE * np.eye(design.shape[1])
    power = np.linalg.solve(normal, design.T @ seconds)
    residuals = seconds - design @ power
    weights = 1.0 / (_distances(place[None], places)[0] ** 2 + 1e-9)
    return float(power[0] + place @ power[1:] + (weights @ residuals) / weights.sum())


def _places(points: Sequence[Point]) -> Array:
    """Logarithms of the sizes to base 4: at a distance of 1 interpolation is poor; float[points, sizes]."""
    return np.asarray(np.log([[max(size, 1) for size in point.sizes] for point in points]) / np.log(4.0))


def _distances(places: Array, others: Array) -> Array:
    """Distance of each place from each other, float[places, others]."""
    return np.asarray(np.sqrt(((places[:, None] - others[None]) ** 2).sum(axis=2)))

"""Axes of drawings: round values between nothing and the most there is."""

import math

__all__ = ["round_between", "round_interval", "round_values"]

FACTORS = (1, 2, 5, 10)


def round_interval(whole: float, most: int) -> float:
    """The least of 1, 2 and 5 times a power of ten of which at most so many make up the whole.

    >>> round_interval(0.0451, 4)
    0.02
    """
    decade = 10.0 ** math.floor(math.log10(whole / most))
    # A factor of 10 always does, but for what rounding takes from the decade.
    return next((factor * decade for factor in FACTORS if whole <= factor * decade * most), 20 * decade)


def round_values(whole: float, most: int) -> list[float]:
    """The multiples of a round interval from 0 up to the whole.

    >>> round_values(80.0, most=4)
    [0.0, 20.0, 40.0, 60.0, 80.0]
    """
    interval = round_interval(whole, most)
    return [index * interval for index in range(int(whole / interval * (1 + 1e-12)) + 1)]


def round_between(low: float, high: float, most: int) -> list[float]:
    """The multiples of a round interval between two values.

    >>> round_between(13.8, 18.2, most=5)
    [14.0, 15.0, 16.0, 17.0, 18.0]
    """
    interval = round_interval(high - low, most)
    first = -(-low // interval)
    return [(first + index) * interval for index in range(int((high - first * interval) / interval * (1 + 1e-12)) + 1)]

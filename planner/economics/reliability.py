"""Training under failures: how often to write checkpoints, what share of the time is then training, how many spares.

Interruptions come at random, at a constant rate. J. T. Daly, A higher order estimate of the optimum checkpoint interval
for restart dumps, Future Generation Computer Systems 22 (2006), gives the interval and the time that a run then takes.
"""

from math import exp, expm1, sqrt

__all__ = ["best_interval_s", "goodput", "spares"]

# A run that keeps less of its time than this never ends; beyond the exponent floats do.
LEAST_GOODPUT = 1e-9
MOST_EXPONENT = 300.0


def best_interval_s(stall_s: float, mtbf_s: float) -> float:
    """Seconds of training between checkpoints that lose least, where each stalls training for `stall_s`.

    Young's sqrt(2 stall mtbf) and Daly's terms of higher order; the mean time between failures where that is shorter
    than half a checkpoint.
    """
    if stall_s >= 2.0 * mtbf_s:
        return mtbf_s
    ratio = sqrt(stall_s / (2.0 * mtbf_s))
    return sqrt(2.0 * stall_s * mtbf_s) * (1.0 + ratio / 3.0 + ratio * ratio / 9.0) - stall_s


def goodput(interval_s: float, stall_s: float, restart_s: float, mtbf_s: float) -> float:
    """Share of the wall time that goes into steps which count, with a checkpoint after every `interval_s` of training.

    What is lost: checkpoints, the work since the last one, restarts, and restarts that fail again. Without failures
    (an infinite `mtbf_s`) only the checkpoints. At least `LEAST_GOODPUT`, which stands for never.
    """
    if mtbf_s == float("inf"):
        return interval_s / (interval_s + stall_s)
    restarts = exp(min(restart_s / mtbf_s, MOST_EXPONENT))
    lost = mtbf_s * restarts * expm1(min((interval_s + stall_s) / mtbf_s, MOST_EXPONENT))
    return max(interval_s / lost, LEAST_GOODPUT)


def spares(mean_down: float, confidence: float) -> int:
    """The fewest spare nodes that are enough for a share `confidence` of the time, `mean_down` being away on average.

    Nodes break down independently: those under repair at a time are Poisson distributed.
    """
    count, term = 0, exp(-mean_down)
    if term == 0.0:  # so many that the distribution is a bell curve, and its terms are beyond floats
        from statistics import NormalDist

        return round(mean_down + NormalDist().inv_cdf(confidence) * sqrt(mean_down) + 0.5)
    total = term
    while total < confidence and term > 0.0:
        count += 1
        term *= mean_down / count
        total += term
    return count

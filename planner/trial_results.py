"""How predictions of trial plans compare with what they took: errors, order, regret, and the noise beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean, median

import numpy as np

from planner.evaluate.statistics import spearman

__all__ = ["Outcome", "Result", "kendall", "outcome", "result_of"]


@dataclass(frozen=True)
class Result:
    """One plan: what was predicted and what its turns came to."""

    kind: str
    plan: str
    predicted_s: float
    predicted_bytes: float
    measured_s: float
    measured_bytes: float
    noise: float
    """Half the range of the turns' medians over their median."""
    waited: float
    """Part of its time that a rank waited for a processor which others had."""
    turns_s: tuple[float, ...] = ()
    """The median step of each of its turns, round by round."""

    @property
    def time_error(self) -> float:
        """Predicted over measured seconds, less 1."""
        return self.predicted_s / self.measured_s - 1.0

    @property
    def memory_error(self) -> float:
        """Predicted over measured bytes, less 1."""
        return self.predicted_bytes / self.measured_bytes - 1.0


@dataclass(frozen=True)
class Outcome:
    """What the plans of one model came to."""

    model: str
    results: tuple[Result, ...]
    time_error: float
    """Mean |predicted / measured - 1|, as all errors here."""
    memory_error: float
    spearman: float
    kendall_of_best: float
    kendall_of_rounds: float
    """Of the best plans' measured steps, one round beside another: no prediction can be expected to do better."""
    regret: float
    """Seconds lost by taking the plan that was predicted to be fastest, over those of the fastest."""
    noise: float
    waited: float


def outcome(model: str, results: Sequence[Result]) -> Outcome:
    """The figures of one model's plans, of which there are at least two."""
    best = [one for one in results if one.kind == "best"]
    chosen = min(results, key=lambda one: one.predicted_s)
    fastest_s = min(one.measured_s for one in results)
    return Outcome(
        model=model,
        results=tuple(results),
        time_error=fmean(abs(one.time_error) for one in results),
        memory_error=fmean(abs(one.memory_error) for one in results),
        spearman=spearman([one.measured_s for one in results], [one.predicted_s for one in results]),
        kendall_of_best=kendall([one.measured_s for one in best], [one.predicted_s for one in best]),
        kendall_of_rounds=_between_rounds(best),
        regret=chosen.measured_s / fastest_s - 1.0,
        noise=fmean(one.noise for one in results),
        waited=fmean(one.waited for one in results),
    )


def _between_rounds(results: Sequence[Result]) -> float:
    """The mean of Kendall's tau over all pairs of rounds; 1 where there is one round alone."""
    rounds = list(zip(*(one.turns_s for one in results), strict=True))
    return fmean(kendall(*pair) for pair in combinations(rounds, 2)) if len(rounds) > 1 else 1.0


def kendall(left: Sequence[float], right: Sequence[float]) -> float:
    """Kendall's tau-b, ties counted out; 0 where one side is all ties.

    >>> kendall([1.0, 2.0, 3.0], [1.0, 3.0, 2.0])
    0.3333333333333333
    """
    signs = [np.sign(np.subtract.outer(np.asarray(side), np.asarray(side))) for side in (left, right)]
    upper = np.triu_indices(len(left), 1)
    first, second = (sign[upper] for sign in signs)
    scale = float(np.sqrt((first != 0).sum() * (second != 0).sum()))
    return float((first * second).sum() / scale) if scale else 0.0


def result_of(
    kind: str, plan: str, predicted: tuple[float, float], turns: Sequence[Mapping[str, Sequence[float]]], peak: float
) -> Result:
    """The result of a plan whose turns have `step_time_s` and `waited_s` of each step."""
    medians = [median(turn["step_time_s"]) for turn in turns]
    middle = median(seconds for turn in turns for seconds in turn["step_time_s"])
    waits = [wait for turn in turns for wait in turn["waited_s"]]
    return Result(
        kind=kind,
        plan=plan,
        predicted_s=predicted[0],
        predicted_bytes=predicted[1],
        measured_s=middle,
        measured_bytes=peak,
        noise=(max(medians) - min(medians)) / 2 / middle,
        waited=fmean(waits) / middle,
        turns_s=tuple(medians),
    )

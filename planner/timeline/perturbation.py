"""What a slow rank costs: the step replayed with the compute of some ranks stretched."""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from cost_models.schedules.times import StageTimes
from planner.errors import RequestError
from planner.timeline.step import Step, replayed

__all__ = ["Perturbation", "Perturbed", "parse_perturbation", "perturbed", "slowed"]

FORM = re.compile(r"stage=(\d+):(.+)")


@dataclass(frozen=True)
class Perturbation:
    """The forwards and backwards of a pipeline rank take `factor` times as long; exchanges and hops stay."""

    stage: int
    factor: float

    def __str__(self) -> str:
        return f"stage={self.stage}:{self.factor:g}"


@dataclass(frozen=True)
class Perturbed:
    """The step with some ranks slower, beside the step as planned."""

    perturbations: tuple[Perturbation, ...]
    step_s: float
    slower: float
    """Fraction by which the step is longer."""
    path_moved: float
    """Fraction of the work on the new critical path that was not on the old one."""
    path_by_rank_s: tuple[float, ...]
    """Seconds of the new critical path that each rank works."""


def parse_perturbation(text: str, stages: int) -> Perturbation:
    """`stage=3:1.2` as a perturbation of a pipeline of so many stages. Raises RequestError for anything else."""
    match = FORM.fullmatch(text.strip())
    if match is None:
        message = f"--perturb must be stage=RANK:FACTOR such as stage=3:1.2, got {text!r}"
        raise RequestError(message)
    stage = int(match[1])
    if stage >= stages:
        allowed = "must be 0, the only stage" if stages == 1 else f"must be in 0..{stages - 1}"
        message = f"stage of --perturb {allowed}, got {stage}"
        raise RequestError(message)
    try:
        factor = float(match[2])
    except ValueError:
        factor = math.nan
    if not (math.isfinite(factor) and factor > 0):
        message = f"factor of --perturb must be a number > 0, got {match[2]!r}"
        raise RequestError(message)
    return Perturbation(stage, factor)


def perturbed(step: Step, perturbations: Sequence[Perturbation]) -> list[Perturbed]:
    """What each perturbation alone costs, and where there are several, last, all of them together."""
    scenarios: list[tuple[Perturbation, ...]] = [(perturbation,) for perturbation in perturbations]
    if len(scenarios) > 1:
        scenarios.append(tuple(perturbations))
    return [_compared(step, scenario) for scenario in scenarios]


def _compared(step: Step, scenario: tuple[Perturbation, ...]) -> Perturbed:
    slow = replayed(step.table, slowed(step.times, scenario), step.global_s)
    new = np.setdiff1d(slow.path, step.path)
    return Perturbed(
        perturbations=scenario,
        step_s=slow.step_s,
        slower=slow.step_s / step.step_s - 1,
        path_moved=float(slow.duration_s[new].sum() / slow.duration_s[slow.path].sum()),
        path_by_rank_s=tuple(slow.path_by_rank_s.tolist()),
    )


def slowed(times: StageTimes, scenario: Sequence[Perturbation]) -> StageTimes:
    """The times with the factors of all perturbations in; those of one rank multiply."""
    factor = np.ones((times.ranks, 1))
    for perturbation in scenario:
        factor[perturbation.stage] *= perturbation.factor
    of_chunks = [field.name for field in fields(times) if getattr(times, field.name).shape == times.forward_s.shape]
    return replace(times, **{name: getattr(times, name) * factor for name in of_chunks})

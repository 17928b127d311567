"""How far predictions lie from measurements: errors by group, rank correlation, and the regret of choosing by them."""

from collections import defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from planner.evaluate.answers import Answer
from planner.evaluate.measured import Measured, measured

__all__ = ["Comparison", "Errors", "Ranking", "Verdicts", "compare", "errors", "ranking", "verdicts"]

FloatArray = NDArray[np.float64]

LEAST_CONFIGURATIONS = 3
# What makes runs comparable: one source, release, model, GPUs, batch, length and precision.
SCENARIO = (
    "source",
    "framework",
    "model",
    "gpu",
    "n_gpus",
    "global_batch_seqs",
    "seq_len",
    "precision",
)
# What tells the configurations of a scenario apart.
CONFIGURATION = (
    "micro_batch",
    "tp",
    "sp",
    "pp",
    "vpp",
    "cp",
    "cp_type",
    "ep",
    "etp",
    "dp",
    "zero_or_fsdp",
    "recompute",
    "schedule",
    "stage_layers",
    "n_layers",
    "hidden",
    "heads",
    "ffn",
)


@dataclass(frozen=True)
class Comparison:
    """One row with its answer and what it measured."""

    row: Mapping[str, Any]
    answer: Answer
    measured: Measured

    @property
    def source(self) -> str:
        """The source: the prefix of the row's id."""
        return str(self.row.get("id", "")).rsplit("-", 1)[0] or str(self.row.get("source", "")) or "runs"

    @property
    def predicted_s(self) -> float:
        """Predicted seconds of a step. The answer must have a prediction."""
        assert self.answer.costs is not None
        return self.answer.costs.step_time_s

    @property
    def time_error(self) -> float | None:
        """Predicted over measured step time, less 1."""
        step = self.measured.step_time_s
        return self.predicted_s / step - 1.0 if step else None

    @property
    def memory_error(self) -> float | None:
        """Predicted over measured peak bytes, less 1, by the counter of the source."""
        costs, peak = self.answer.costs, self.measured.peak_bytes
        if costs is None or peak is None:
            return None
        predicted = {
            "allocated": costs.allocated_bytes,
            "reserved": costs.reserved_bytes,
            "device": costs.device_bytes,
        }
        return predicted[self.measured.counter] / peak - 1.0


@dataclass(frozen=True)
class Errors:
    """Errors of a group as fractions: mean and median of their sizes, the median itself, the share within 10 %."""

    count: int
    mean: float
    median: float
    bias: float
    within: float

    @classmethod
    def of(cls, values: FloatArray) -> Self:
        """The errors of a group from its signed ones."""
        sizes = np.abs(values)
        return cls(
            count=len(values),
            mean=float(sizes.mean()),
            median=float(np.median(sizes)),
            bias=float(np.median(values)),
            within=float(np.mean(sizes <= 0.10)),
        )


@dataclass(frozen=True)
class Ranking:
    """How well predictions order the configurations of each scenario.

    `regret`: seconds lost by taking the predicted best, over the measured best; `correlation`: Spearman's.
    """

    groups: int
    mean_regret: float
    zero_regret: float
    largest_regret: float
    correlation: float


@dataclass(frozen=True)
class Verdicts:
    """Verdicts on memory: right, wrong, borderline."""

    right: int
    wrong: int
    borderline: int


def compare(rows: Sequence[Mapping[str, Any]], found: Sequence[Answer]) -> list[Comparison]:
    """The rows that have a prediction, with what they measured."""
    return [
        Comparison(row, answer, measured(row, answer))
        for row, answer in zip(rows, found, strict=True)
        if answer.costs is not None
    ]


def errors(
    compared: Sequence[Comparison],
    error: Callable[[Comparison], float | None],
    group: Callable[[Comparison], Hashable],
) -> dict[Hashable, Errors]:
    """Errors of each group that has any, in the order of their names."""
    values: dict[Hashable, list[float]] = defaultdict(list)
    for one in compared:
        if (value := error(one)) is not None:
            values[group(one)].append(value)
    return {name: Errors.of(np.array(values[name])) for name in sorted(values, key=str)}


def ranking(compared: Sequence[Comparison]) -> Ranking | None:
    """The ranking of scenarios with three configurations or more; None when there is no such scenario.

    Repeats of a configuration are averaged. Where predictions tie, each of the tied is as likely to be taken.
    """
    regrets, correlations = [], []
    for configurations in _scenarios(compared):
        seconds = np.array([np.mean([one.measured.step_time_s for one in same]) for same in configurations])
        predicted = np.array([np.mean([one.predicted_s for one in same]) for same in configurations])
        tied = np.isclose(predicted, predicted.min(), rtol=1e-9)
        regrets.append(float(seconds[tied].mean() / seconds.min() - 1.0))
        correlations.append(spearman(seconds, predicted))
    if not regrets:
        return None
    return Ranking(
        groups=len(regrets),
        mean_regret=float(np.mean(regrets)),
        zero_regret=float(np.mean(np.array(regrets) <= 1e-9)),
        largest_regret=max(regrets),
        correlation=float(np.mean(correlations)),
    )


def _scenarios(compared: Sequence[Comparison]) -> list[list[list[Comparison]]]:
    """The configurations of each scenario, each with its repeats."""
    scenarios: dict[Hashable, dict[Hashable, list[Comparison]]] = defaultdict(lambda: defaultdict(list))
    for one in compared:
        if one.time_error is not None:
            scenario = tuple(str(one.row.get(name, "")) for name in SCENARIO)
            cells = tuple(str(one.row.get(name, "")) for name in CONFIGURATION)
            configuration = (*cells, one.answer.run.schedule if one.answer.run else "")
            scenarios[scenario][configuration].append(one)
    return [list(found.values()) for found in scenarios.values() if len(found) >= LEAST_CONFIGURATIONS]


def spearman(left: Any, right: Any) -> float:
    ranks = [np.array([np.mean(np.flatnonzero(np.sort(side) == value)) for value in side]) for side in (left, right)]
    if any(np.ptp(rank) == 0 for rank in ranks):
        return 0.0
    return float(np.corrcoef(ranks[0], ranks[1])[0, 1])


def verdicts(compared: Sequence[Comparison]) -> Verdicts:
    """Verdicts against what happened: a run that worked fits, one that ran out of memory does not."""
    right = wrong = borderline = 0
    for one in compared:
        if one.measured.step_time_s is None and one.measured.peak_bytes is None and not one.measured.out_of_memory:
            continue
        said = one.answer.fits
        if said == "borderline":
            borderline += 1
        elif (said == "no") == one.measured.out_of_memory:
            right += 1
        else:
            wrong += 1
    return Verdicts(right, wrong, borderline)

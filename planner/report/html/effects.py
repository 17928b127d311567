"""How much each input of a study matters: what one value instead of another changes, everything else equal."""

from dataclasses import dataclass
from math import exp, log
from statistics import fmean

from planner.report.html.sweeps import Metric, metrics
from planner.study import ScenarioResult, Study, SweptInput

__all__ = ["Effect", "InputEffects", "effects"]

MEASURES = ("speed", "cost")


@dataclass(frozen=True)
class Effect:
    """One value against the first: by which factor a measure changes, in geometric mean, and between which."""

    value: str
    pairs: int
    factors: tuple[str, ...]
    ranges: tuple[str, ...]
    bars: tuple[tuple[float, float], ...]
    """(left, width) in percent of a cell whose middle is no change."""


@dataclass(frozen=True)
class InputEffects:
    """An input: the value that others are compared with, and what each of them changes."""

    key: str
    first: str
    rows: tuple[Effect, ...]


def effects(study: Study) -> tuple[tuple[str, ...], list[InputEffects]]:
    """The measures' names, and the inputs of several values. Pairs count in which both scenarios have a plan."""
    measures = [each for each in metrics(study) if each.key in MEASURES]
    inputs = [each for each in study.swept if len(each.values) > 1]
    raw = {each.key: _of(study, each, measures) for each in inputs}
    logs = [abs(log(factor)) for rows in raw.values() for _, _, found in rows for factor, _, _ in found if factor > 0]
    largest = max(logs, default=0.0) or 1.0
    found = [
        InputEffects(
            each.key, each.values[0], tuple(_row(value, pairs, of, largest) for value, pairs, of in raw[each.key])
        )
        for each in inputs
    ]
    return tuple(each.name for each in measures), found


def _of(
    study: Study, swept: SweptInput, measures: list[Metric]
) -> list[tuple[str, int, list[tuple[float, float, float]]]]:
    """Of every other value: how many pairs, and of each measure the mean factor, the least and the largest."""
    place = [each.key for each in study.swept].index(swept.key)
    planned = {each.inputs_of(study): each for each in study.planned}
    rows = []
    for value in swept.values[1:]:
        pairs = []
        for inputs, each in planned.items():
            first = planned.get((*inputs[:place], swept.values[0], *inputs[place + 1 :]))
            if inputs[place] == value and first is not None:
                pairs.append((first, each))
        rows.append((value, len(pairs), [_factors(pairs, measure) for measure in measures] if pairs else []))
    return rows


def _factors(pairs: list[tuple[ScenarioResult, ScenarioResult]], measure: Metric) -> tuple[float, float, float]:
    """Geometric mean, least and largest of the quotients; zeros where no pair has the measure."""
    part, name = measure.field.split(".")
    values = [[getattr(getattr(each, part), name) for each in pair] for pair in pairs]
    known = [log(after / before) for before, after in values if before and after]
    return (exp(fmean(known)), exp(min(known)), exp(max(known))) if known else (0.0, 0.0, 0.0)


def _row(value: str, pairs: int, found: list[tuple[float, float, float]], largest: float) -> Effect:
    return Effect(
        value=value,
        pairs=pairs,
        factors=tuple(f"x {_factor(mean)}" if mean else "" for mean, _, _ in found),
        ranges=tuple(
            f"{_factor(low)} to {_factor(high)}" if _factor(low) != _factor(high) else "" for _, low, high in found
        ),
        bars=tuple(_bar(mean, largest) for mean, _, _ in found),
    )


def _bar(factor: float, largest: float) -> tuple[float, float]:
    at = 50 * log(factor) / largest if factor > 0 else 0.0
    return 50 + min(at, 0.0), abs(at)


def _factor(value: float) -> str:
    """A factor with two decimals, of small ones two digits."""
    return f"{value:.2f}" if value >= 0.1 else f"{value:.2g}"

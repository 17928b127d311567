"""Fit the few constants of a long run to measured step times, with whole sources left out in turn.

    python scripts/fit_constants.py FOLDER

FOLDER holds runs.csv and, where it is there, sanity.csv, as tests/benchmarks/accuracy.py takes them. Every constant is
a factor on what data/profiles holds, with a Gaussian prior round 1 in its logarithm; sources weigh alike whatever their
number of rows, and rows far off count by Huber's loss. The response of every row to every constant is taken by finite
differences, twice: at the profiles as they are, and again where the first fit ended.

Printed are the factors fitted to all sources and their least and largest when one source is left out, then the errors
of each source: as the profiles are, with it in the fit, and with it left out. Nothing here names a source or a row;
what is written into the profiles is the factor times what they hold, rounded, where the folds agree on it.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cost_models.specs.profile import HardwareProfile
from planner.evaluate.answers import answers, read_rows
from planner.evaluate.predictions import costs_of
from planner.evaluate.runs import Run
from planner.evaluate.statistics import Comparison, compare
from tests.benchmarks.accuracy import complete

Array = npt.NDArray[np.float64]

HUBER = 0.10  # errors beyond this count linearly
STEP = 0.04  # of the finite differences, in the logarithm
ROUNDS = 30  # of the reweighting
FAMILIES = {
    "Volta": ("v100",),
    "Ampere": ("a100", "a800"),
    "Hopper": ("h100", "h200", "h800", "gh200"),
    "Blackwell": ("b200", "gb200", "b300", "gb300"),
}


@dataclass(frozen=True)
class Constant:
    """A factor on one constant of some profiles, and how far from 1 its logarithm may be expected to lie."""

    name: str
    deviation: float
    changed: Callable[[HardwareProfile, float], HardwareProfile]
    gpus: tuple[str, ...] = ()

    def applied(self, profile: HardwareProfile, factor: float) -> HardwareProfile:
        """The profile with the constant times a factor, if it is of one of its GPUs."""
        mine = not self.gpus or profile.name.split("-")[0] in self.gpus
        return self.changed(profile, factor) if mine else profile


def _sustained(profile: HardwareProfile, factor: float) -> HardwareProfile:
    return profile.replaced(sustained_fraction=min(1.0, profile.sustained_fraction * factor))


def _product(dtype: str) -> Callable[[HardwareProfile, float], HardwareProfile]:
    def changed(profile: HardwareProfile, factor: float) -> HardwareProfile:
        if dtype not in profile.gemm:
            return profile
        roofline = profile.gemm[dtype]
        roofline = roofline.replaced(peak_fraction=min(1.0, roofline.peak_fraction * factor))
        return profile.replaced(gemm={**profile.gemm, dtype: roofline})

    return changed


def _link(kind: str) -> Callable[[HardwareProfile, float], HardwareProfile]:
    def changed(profile: HardwareProfile, factor: float) -> HardwareProfile:
        fraction = min(1.0, profile.link_fraction[kind] * factor)
        return profile.replaced(link_fraction={**profile.link_fraction, kind: fraction})

    return changed


def _interference(profile: HardwareProfile, factor: float) -> HardwareProfile:
    slowdown = 1.0 + (profile.overlap.compute_slowdown - 1.0) * factor
    return profile.replaced(overlap=profile.overlap.replaced(compute_slowdown=slowdown))


def _launch(profile: HardwareProfile, factor: float) -> HardwareProfile:
    return profile.replaced(host_launch_s=profile.host_launch_s * factor)


def _elementwise(profile: HardwareProfile, factor: float) -> HardwareProfile:
    constants = profile.elementwise
    share = min(1.0, constants.bandwidth_fraction * factor)
    return profile.replaced(elementwise=constants.replaced(bandwidth_fraction=share))


def _straggling(profile: HardwareProfile, factor: float) -> HardwareProfile:
    return profile.replaced(straggling_per_doubling=min(0.1, profile.straggling_per_doubling * factor))


CONSTANTS = (
    *(Constant(f"sustained_fraction, {name}", 0.06, _sustained, gpus) for name, gpus in FAMILIES.items()),
    Constant("gemm.fp8.peak_fraction, Hopper", 0.06, _product("fp8"), FAMILIES["Hopper"]),
    Constant("gemm.fp8.peak_fraction, B200", 0.06, _product("fp8"), ("b200",)),
    Constant("gemm.fp8.peak_fraction, GB200", 0.06, _product("fp8"), ("gb200",)),
    Constant("gemm.fp8.peak_fraction, B300 and GB300", 0.06, _product("fp8"), ("b300", "gb300")),
    Constant("gemm.bf16.peak_fraction, GB200", 0.06, _product("bf16"), ("gb200",)),
    Constant("gemm.bf16.peak_fraction, B300 and GB300", 0.06, _product("bf16"), ("b300", "gb300")),
    Constant("link_fraction.network", 0.15, _link("network")),
    Constant("link_fraction.nvlink", 0.10, _link("nvlink")),
    Constant("overlap.compute_slowdown, less 1", 0.25, _interference),
    Constant("host_launch_s", 0.30, _launch),
    Constant("elementwise.bandwidth_fraction", 0.05, _elementwise),
    Constant("straggling_per_doubling", 0.50, _straggling),
)


def main() -> None:
    """Print factors and errors."""
    parser = argparse.ArgumentParser(description="Fit the constants of the profiles, sources left out in turn.")
    parser.add_argument("folder", type=Path, help="folder of runs.csv")
    compared = _measured(parser.parse_args().folder)
    runs = [one.answer.run for one in compared if one.answer.run is not None]
    sources = np.array([one.source for one in compared])
    seconds = np.log([one.measured.step_time_s for one in compared])
    before = _logarithms(runs, np.zeros(len(CONSTANTS)))
    theta = np.zeros(len(CONSTANTS))
    for _ in range(2):
        at, slopes = _responses(runs, theta)
        start, theta = theta, fitted(at - slopes @ theta - seconds, slopes, sources)
    errors = at + slopes @ (theta - start) - seconds
    folds, left_out = {}, np.empty(len(seconds))
    for source in np.unique(sources):
        mine = sources == source
        folds[source] = fitted((at - slopes @ start - seconds)[~mine], slopes[~mine], sources[~mine])
        left_out[mine] = (at + slopes @ (folds[source] - start) - seconds)[mine]
    _print_factors(theta, np.array(list(folds.values())))
    _print_errors(sources, {"now": before - seconds, "fitted": errors, "left out": left_out})


def _measured(folder: Path) -> list[Comparison]:
    """The complete rows of a folder that have a step time."""
    rows = read_rows(folder / "runs.csv")
    known = complete(folder, rows)
    return [one for one in compare(rows, answers(rows)) if one.row["id"] in known and one.time_error is not None]


def fitted(residuals: Array, slopes: Array, sources: npt.NDArray[Any]) -> Array:
    """Logarithms of the factors that minimise Huber's loss of residuals + slopes @ factors, with the priors.

    Every source weighs as much as the others; the priors weigh as one source whose error is its expected deviation.
    """
    names, counts = np.unique(sources, return_counts=True)
    weight = 1.0 / dict_of(names, counts)(sources)
    prior = np.array([(HUBER / constant.deviation) ** 2 for constant in CONSTANTS]) / len(names)
    theta = np.zeros(slopes.shape[1])
    for _ in range(ROUNDS):
        size = np.abs(residuals + slopes @ theta)
        robust = weight * np.minimum(1.0, HUBER / np.maximum(size, 1e-12))
        left = slopes.T @ (robust[:, None] * slopes) + np.diag(prior)
        theta = np.linalg.solve(left, -slopes.T @ (robust * residuals))
    return theta


def dict_of(names: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Callable[[npt.NDArray[Any]], Array]:
    """How often each name occurs, looked up for an array of names."""
    return lambda wanted: counts[np.searchsorted(names, wanted)].astype(np.float64)


def _responses(runs: Sequence[Run], theta: Array) -> tuple[Array, Array]:
    """Logarithms of the predicted seconds, float[rows], and their slopes, float[rows, constants]."""
    at = _logarithms(runs, theta)
    steps = STEP * np.eye(len(CONSTANTS))
    return at, np.stack([(_logarithms(runs, theta + step) - at) / STEP for step in steps], axis=1)


def _logarithms(runs: Sequence[Run], theta: Array) -> Array:
    factors = np.exp(theta)

    def changed(profile: HardwareProfile) -> HardwareProfile:
        for constant, factor in zip(CONSTANTS, factors, strict=True):
            profile = constant.applied(profile, float(factor)) if factor != 1.0 else profile
        return profile

    profiles = {run.profile.name: run.profile for run in runs}
    replaced = {name: changed(profile) for name, profile in profiles.items()}
    costs = costs_of([replace(run, profile=replaced[run.profile.name]) for run in runs])
    return np.log([cost.step_time_s for cost in costs])


def _print_factors(theta: Array, folds: Array) -> None:
    print(f"{'factor on':45}{'all':>8}{'least':>8}{'most':>8}")
    for name, value, low, high in zip(
        [constant.name for constant in CONSTANTS],
        np.exp(theta),
        np.exp(folds.min(axis=0)),
        np.exp(folds.max(axis=0)),
        strict=True,
    ):
        print(f"{name:45}{value:8.3f}{low:8.3f}{high:8.3f}")


def _print_errors(sources: npt.NDArray[Any], logarithms: dict[str, Array]) -> None:
    errors = {name: 100 * np.expm1(values) for name, values in logarithms.items()}
    print(f"\n{'mean / median / bias, %':25}{'rows':>6}" + "".join(f"{name:>24}" for name in errors))
    for source in (*np.unique(sources), "all"):
        mine = np.ones(len(sources), dtype=bool) if source == "all" else sources == source
        figures = (
            f"{np.abs(e[mine]).mean():10.1f}{np.median(np.abs(e[mine])):7.1f}{np.median(e[mine]):+7.1f}"
            for e in errors.values()
        )
        print(f"{source:25}{mine.sum():6}" + "".join(figures))


if __name__ == "__main__":
    main()

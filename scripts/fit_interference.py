"""Fit how much compute, collectives and host copies slow each other, and write the factors of each GPU.

    python scripts/fit_interference.py MEASUREMENTS.csv [-o data/interference]

The file has a row for each measurement of Mist's artifact: gpu, compute_n, g2g_mb, c2g_mb, g2c_mb (the work of the
four streams, 0 where one is idle), latency_ms, std_over_mean, inter, intra (nodes, GPUs a node) and source.

A stream's seconds alone are a line in its work, by sweep (nodes, GPUs a node) and stream: Theil and Sen's median of
slopes, from the rows where it runs alone. Factors are fitted set by set, pairs first, with the smaller sets frozen, on
rows that repeat within 10 % and are not slower than one stream after another (Mist's own filter). The loss is the mean
|log(predicted / measured)| and a small price on large factors, which the data often leave open; each set is raised to
satisfy the condition under which adding work never shortens the time. Errors are mean |predicted / measured - 1|:
cross-validated, each sweep being predicted from the others, and of the shipped factors on the rows that made them.
"""

import argparse
import csv
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.interference import (
    SETS,
    Slowdowns,
    cell,
    factor_table,
    fastest_fall,
    set_name,
    until_all_end,
    weights_beside,
)
from cost_models.interference import Streams as StreamNames

WORK_COLUMNS = ("compute_n", "g2g_mb", "c2g_mb", "g2c_mb")  # in the order of STREAMS
LARGEST_SPREAD = 0.1  # standard deviation over mean of a row that repeats
LARGEST_ERROR = 0.2  # above this, cross-validated, factors say nothing and are not written
DECIMALS = 1e4
PRICE_OF_FACTORS = 0.005  # added to the loss for each unit of the mean log factor
LARGEST_FACTOR = 50.0  # Mist's bound
RANDOM_STARTS, BEST_STARTS, SEED = 60, 4, 0
CATALOG_NAMES = {
    "a100-sxm4-40gb": "a100-40-sxm",
    "v100-sxm2-16gb": "v100-16-sxm",
    "v100-sxm2-32gb": "v100-32-sxm",
}
HOSTS = {
    "a100-sxm4-40gb": "8 A100-SXM4-40GB a node on NVLink, 1 to 4 nodes on a weak network; copies run beside compute",
    "l4": "one box of 8 L4 whose copies and compute take turns; on the box of Mist's tuning template they run together",
    "v100-sxm2-16gb": "8 V100-SXM2-16GB a node, 1 to 4 nodes; copies at 3 GB/s take turns with each other and compute",
    "v100-sxm2-32gb": "8 V100-SXM2-32GB a node, 1 to 4 nodes; copies at 6 GB/s run beside compute",
}
# Mist's own factors and line rates on the same rows, those that repeat within 10 %; fitted to them, not cross-validated
MIST_ERRORS = {"a100-sxm4-40gb": 0.101, "v100-sxm2-16gb": 0.068, "v100-sxm2-32gb": 0.104, "l4": 0.112}

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]


@dataclass(frozen=True)
class Measurements:
    """Rows of one GPU: seconds alone (streams, rows), seconds together, relative spread, and the sweep of each row."""

    alone_s: Array
    together_s: Array
    spread: Array
    sweep: NDArray[np.int64]
    source: str

    def __getitem__(self, rows: Mask) -> "Measurements":
        """Return the rows of a mask."""
        return replace(
            self,
            alone_s=self.alone_s[:, rows],
            together_s=self.together_s[rows],
            spread=self.spread[rows],
            sweep=self.sweep[rows],
        )

    @property
    def repeats(self) -> Mask:
        """Where a row repeats within 10 %."""
        return np.asarray(self.spread <= LARGEST_SPREAD)

    @property
    def fits(self) -> Mask:
        """Where Mist fits, and we: it repeats and is not slower than one stream after another."""
        return np.asarray(self.repeats & (self.together_s <= self.alone_s.sum(axis=0)))


def main() -> None:
    """Fit each GPU of the file, print its errors, and write its factors where they say something."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("measurements", type=Path)
    parser.add_argument("-o", "--output", type=Path, help="folder for the factors, one TOML file a GPU")
    arguments = parser.parse_args()
    with arguments.measurements.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    print("mean error over rows of 2 streams or more  all rows  repeat within 10 %  fitted rows", flush=True)
    for gpu in sorted({row["gpu"] for row in rows}):
        measured = measurements([row for row in rows if row["gpu"] == gpu])
        slowdowns = report(gpu, measured)
        worst = slowdowns.errors["cross_validated"]
        if arguments.output and worst <= LARGEST_ERROR:
            path = arguments.output / f"{slowdowns.gpu}.toml"
            path.write_text("".join(toml_lines(slowdowns)), encoding="utf-8")
        elif worst > LARGEST_ERROR:
            print(f"  the error is above {LARGEST_ERROR:.0%}: the measurements say little of interference; not written")


def measurements(rows: Sequence[dict[str, str]]) -> Measurements:
    """Return the rows where two streams or more run and each was also measured alone in the same sweep."""
    work = np.array([[float(row[column]) for column in WORK_COLUMNS] for row in rows]).T
    together = np.array([float(row["latency_ms"]) for row in rows]) / 1e3
    sweep = np.array([100 * int(row["inter"]) + int(row["intra"]) for row in rows])
    single = (work > 0).sum(axis=0) == 1
    alone = np.where(work > 0, np.nan, 0.0)
    for number in np.unique(sweep):
        for stream in range(len(WORK_COLUMNS)):
            here = (sweep == number) & (work[stream] > 0)
            if (here & single).sum() >= 2:
                alone[stream, here] = on_line(work[stream, here], *line(work[stream], together, here & single))
    spread = np.array([float(row["std_over_mean"]) for row in rows])
    every_row = Measurements(
        alone, together, spread, sweep, "; ".join(sorted({str(Path(row["source"]).parent) for row in rows}))
    )
    return every_row[~single & ~np.isnan(alone).any(axis=0)]


def line(work: Array, seconds: Array, rows: Mask) -> tuple[float, float]:
    """Return (seconds at no work, seconds a unit of work) by Theil and Sen."""
    x, y = work[rows], seconds[rows]
    first, second = np.triu_indices(len(x), 1)
    slope = float(np.median((y[second] - y[first]) / (x[second] - x[first])))
    return max(0.0, float(np.median(y - slope * x))), slope


def on_line(work: Array, at_zero: float, slope: float) -> Array:
    """Return the seconds of a line at some work."""
    return at_zero + slope * work


def report(gpu: str, measured: Measurements) -> Slowdowns:
    """Print the errors of the naive rules, of Mist's own fit and of ours; return the slowdowns of all rows."""
    slowdowns = Slowdowns(gpu=CATALOG_NAMES.get(gpu, gpu), host=HOSTS.get(gpu, "not stated"), factors=fit(measured))
    shipped = until_all_end(measured.alone_s, factor_table(slowdowns))
    held_out = cross_validated(measured)
    print(f"{gpu}: {measured.together_s.size} rows, {measured.repeats.sum()} repeat, {measured.fits.sum()} fitted")
    print_errors("the longest stream", measured, measured.alone_s.max(axis=0))
    print_errors("one after another", measured, measured.alone_s.sum(axis=0))
    if gpu in MIST_ERRORS:
        print(f"  {'own fit of Mist, not cross-validated':<40} {'':>8} {MIST_ERRORS[gpu]:>19.1%}")
    print_errors("these factors, on the rows that made them", measured, shipped)
    print_errors("cross-validated by sweep", measured, held_out)
    errors = {
        "cross_validated": error(measured, held_out, measured.repeats),
        "cross_validated_all_rows": error(measured, held_out, np.full(held_out.shape, True)),
        "shipped": error(measured, shipped, measured.repeats),
    }
    return slowdowns.replaced(
        errors={name: round(value, 4) for name, value in errors.items()}, sources=sources(measured, gpu)
    )


def print_errors(name: str, measured: Measurements, predicted_s: Array) -> None:
    """Print the errors of one prediction on all rows, those that repeat, and those fitted."""
    every = np.full(predicted_s.shape, True)
    everywhere, repeats, fits = (
        error(measured, predicted_s, rows) for rows in (every, measured.repeats, measured.fits)
    )
    print(f"  {name:<40} {everywhere:>8.1%} {repeats:>19.1%} {fits:>12.1%}")


def error(measured: Measurements, predicted_s: Array, rows: Mask) -> float:
    """Return the mean |predicted / measured - 1| of some rows."""
    return float(np.abs(predicted_s / measured.together_s - 1)[rows].mean())


def cross_validated(measured: Measurements) -> Array:
    """Return the seconds of each row, predicted by factors fitted without its sweep."""
    predicted = np.empty(measured.together_s.size)
    for number in np.unique(measured.sweep):
        here = measured.sweep == number
        slowdowns = Slowdowns(gpu="held out", factors=fit(measured[~here]))
        predicted[here] = until_all_end(measured.alone_s[:, here], factor_table(slowdowns))
    return predicted


def fit(measured: Measurements) -> dict[str, dict[str, float]]:
    """Return the factors of every set, by name, fitted set by set on the rows that qualify."""
    rows = measured[measured.fits]
    table = np.ones((4, 16))
    factors: dict[str, dict[str, float]] = {}
    generator = np.random.default_rng(SEED)
    for streams in SETS:
        weights = weights_beside(factors, streams)
        here = rows[set_of(rows.alone_s) == cell(streams)[1]]

        def loss(logs: Array, streams: StreamNames = streams, weights: Array = weights, here: Any = here) -> float:
            table[cell(streams)] = raised_to(logs, weights)
            ratio = until_all_end(here.alone_s, table) / here.together_s
            return float(np.abs(np.log(ratio)).mean() + PRICE_OF_FACTORS * np.log(table[cell(streams)]).mean())

        found = raised_to(minimum(loss, len(streams), generator), weights)
        table[cell(streams)] = np.ceil(found * DECIMALS) / DECIMALS
        factors[set_name(streams)] = dict(zip(streams, table[cell(streams)].tolist(), strict=True))
    return factors


def set_of(alone_s: Array) -> NDArray[np.uint8]:
    """Return the column of a `factor_table` that each row starts in."""
    return np.asarray(np.packbits(alone_s > 0, axis=0, bitorder="little")[0])


def raised_to(logs: Array, weights: Array) -> Array:
    """Return the factors of some logarithms, all raised alike as far as the condition on them needs."""
    factors = np.exp(logs)
    return np.asarray(factors * max(1.0, fastest_fall(weights, factors)))


def minimum(loss: Callable[[Array], float], size: int, generator: np.random.Generator) -> Array:
    """Return the best argument that pattern searches find from the best of some random starts."""
    largest = np.log(LARGEST_FACTOR) * generator.uniform(size=(RANDOM_STARTS, 1))
    starts = sorted(largest * generator.uniform(size=(RANDOM_STARTS, size)), key=loss)[:BEST_STARTS]
    return min((pattern_search(loss, start, generator) for start in starts), key=loss)


def pattern_search(loss: Callable[[Array], float], start: Array, generator: np.random.Generator) -> Array:
    """Return a local minimum within the bounds: steps along the axes and along random axes, halved when none helps."""
    best, least, step = start, loss(start), 0.5
    axes = turned = np.eye(start.size)
    while step > 2e-3:
        helped = False
        for direction in np.concatenate([axes, turned, -axes, -turned]):
            tried = np.clip(best + step * direction, 0.0, np.log(LARGEST_FACTOR))
            value = loss(tried)
            if value < least - 1e-7:
                best, least, helped = tried, value, True
        if not helped:
            step /= 2
            turned = np.linalg.qr(generator.normal(size=(start.size, start.size)))[0]
    return best


def sources(measured: Measurements, gpu: str) -> dict[str, str]:
    """Return where the factors and the errors come from."""
    counts = f"{measured.fits.sum():,} of {measured.together_s.size:,} rows, {len(np.unique(measured.sweep))} sweeps"
    mist = f"; Mist's own fit {MIST_ERRORS[gpu]:.1%}, not cross-validated" if gpu in MIST_ERRORS else ""
    return {
        "factors": f"scripts/fit_interference.py on {counts}, of Mist's artifact (Apache-2.0): {measured.source}",
        "errors": f"cross-validated: each sweep predicted from the others, rows that repeat within 10 %{mist}",
    }


def toml_lines(slowdowns: Slowdowns) -> Iterator[str]:
    """Yield the lines of a data file."""
    yield "# How many times longer each stream takes beside others. Written by scripts/fit_interference.py.\n"
    yield f'gpu = "{slowdowns.gpu}"\nhost = "{slowdowns.host}"\n'
    for name, of_streams in slowdowns.factors.items():
        yield f'\n[factors."{name}"]\n'
        yield from (f"{stream} = {factor:.4f}\n" for stream, factor in of_streams.items())
    yield "\n[errors]\n"
    yield from (f"{name} = {value:.4f}\n" for name, value in slowdowns.errors.items())
    yield "\n[sources]\n"
    yield from (f'{name} = "{text}"\n' for name, text in slowdowns.sources.items())


if __name__ == "__main__":
    main()

"""Fit the two attention constants of each hardware profile to measured causal attention efficiencies.

    python scripts/fit_attention_constants.py [MEASURED.csv]

Without a file it uses the table below: causal forward attention, batch 1, head size 128, best kernel, as a share of
the dense bf16 peak (FLOPs = 2 * batch * heads * length^2 * head size), read from NVIDIA aiconfigurator's published
measurements (Apache-2.0, `context_attention_perf`). A file has the columns system, batch_size, isl, num_heads,
head_dim, eff, and may hold several kernels of a shape: the fastest counts.

The model is the one of `AttentionRoofline`; the error printed is the mean and the largest |predicted/measured - 1|.
"""

import csv
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import numpy.typing as npt

LENGTHS = (2048, 4096, 8192)
TABLE = {
    "a100_sxm": {
        4: (0.18, 0.30, 0.42),
        8: (0.28, 0.40, 0.50),
        16: (0.37, 0.48, 0.60),
        32: (0.45, 0.58, 0.65),
        64: (0.53, 0.63, 0.65),
    },
    "h100_sxm": {
        4: (0.14, 0.28, 0.59),
        8: (0.24, 0.51, 0.63),
        16: (0.42, 0.54, 0.64),
        32: (0.47, 0.55, 0.64),
        64: (0.47, 0.57, 0.65),
    },
    "b200_sxm": {
        4: (0.06, 0.13, 0.29),
        8: (0.12, 0.26, 0.37),
        16: (0.22, 0.33, 0.46),
        32: (0.28, 0.42, 0.58),
        64: (0.35, 0.47, 0.63),
    },
}
MULTIPROCESSORS = {
    "a100_sxm": 108,
    "h100_sxm": 132,
    "h200_sxm": 132,
    "b200_sxm": 148,
    "b300_sxm": 148,
    "gb200": 152,
    "l40s": 142,
}
TILE_ROWS, TILES_PER_MULTIPROCESSOR = 128, 2
PEAK_FRACTIONS = np.arange(0.30, 1.001, 0.005)
HALF_LENGTHS = np.arange(0, 6001, 50)

Shares = npt.NDArray[np.float64]
Points = dict[tuple[int, int], float]  # (heads, length) -> measured share of the peak


def main(arguments: list[str]) -> None:
    """Print, for each GPU, the constants and their error."""
    systems = read_points(Path(arguments[0])) if arguments else table_points()
    for system, points in systems.items():
        peak_fraction, half_length, errors = fit(points, MULTIPROCESSORS[system])
        print(
            f"{system}: peak_fraction = {peak_fraction:.3f}, half_length = {half_length:.0f}, {len(points)} points, "
            f"error mean {errors.mean():.1%}, largest {errors.max():.1%}"
        )


def table_points() -> dict[str, Points]:
    """Return the points of TABLE, by system."""
    return {
        system: {(heads, LENGTHS[i]): share for heads, shares in rows.items() for i, share in enumerate(shares)}
        for system, rows in TABLE.items()
    }


def read_points(path: Path) -> dict[str, Points]:
    """Return the best share of each shape of TABLE's kind in a measurement file, by system."""
    systems: dict[str, Points] = {}
    with path.open(encoding="utf-8", newline="") as file:
        for row in wanted_rows(csv.DictReader(file)):
            shape = (int(row["num_heads"]), int(row["isl"]))
            points = systems.setdefault(row["system"], {})
            points[shape] = max(points.get(shape, 0.0), float(row["eff"]))
    return systems


def wanted_rows(rows: Iterator[dict[str, str]]) -> Iterator[dict[str, str]]:
    """Yield the rows of batch 1, head size 128, and the heads and lengths of TABLE."""
    for row in rows:
        shape_is_wanted = int(row["isl"]) in LENGTHS and int(row["num_heads"]) in TABLE["a100_sxm"]
        plain = row["batch_size"] == "1" and row["head_dim"] == "128"
        if plain and shape_is_wanted and row["system"] in MULTIPROCESSORS:
            yield row


def fit(points: Points, multiprocessors: int) -> tuple[float, float, Shares]:
    """Return (peak_fraction, half_length, relative errors) of the grid point with the least squared log error."""
    heads, lengths = np.array(list(points)).T
    measured = np.array(list(points.values()))
    occupancy = np.minimum(1, heads * (lengths / TILE_ROWS) / (TILES_PER_MULTIPROCESSOR * multiprocessors))

    def ratios(constants: tuple[float, float]) -> Shares:
        peak_fraction, half_length = constants
        return np.asarray(peak_fraction * lengths / (lengths + half_length) * occupancy / measured)

    grid = product(PEAK_FRACTIONS, HALF_LENGTHS)
    best = min(grid, key=lambda constants: float(np.sum(np.log(ratios(constants)) ** 2)))
    return float(best[0]), float(best[1]), np.abs(ratios(best) - 1)


if __name__ == "__main__":
    main(sys.argv[1:])

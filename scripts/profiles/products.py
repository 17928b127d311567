"""Tables of matrix products: shape from isolated measurements, layouts from measured training products."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cost_models import surface
from cost_models.kernels import OPERAND_BYTES, OUTPUT_BYTES
from cost_models.specs.gpu import GpuSpec
from profiles import sources
from profiles.sources import Array, System

# The time of a product that is this near to its bytes' says little of its arithmetic.
BOUND_BY_BYTES, LITTLE_WEIGHT = 0.8, 0.1
# Shapes that training spends its time on: they set the level, which the profile's constants are known for.
USUAL_ROWS, USUAL_SIDES = 2048, (1024, 16384)
CAST_BYTES = {"bf16": 0, "fp8": 3}
LEAST_FLOPS = 2e9
L4_AXES = (2.0 ** np.arange(11, 15), 2.0 ** np.arange(10, 17), 2.0 ** np.arange(9, 15))
LAYOUTS = {"forward": "TN", "input_grad": "NN", "weight_grad": "NT"}


@dataclass(frozen=True)
class Products:
    """Measured products of one GPU and data type: rows, columns and inner sizes, and seconds, float[products].

    `extra_s` is what was timed with a product and is none of it: launch, and the cast of its first operand. `axes` are
    the nodes of its table.
    """

    sizes: tuple[Array, Array, Array]
    seconds: Array
    peak_flops: float
    bytes_s: Array
    extra_s: Array
    axes: tuple[Array, ...]

    @property
    def flops_s(self) -> Array:
        """Seconds at the peak."""
        return 2 * np.prod(self.sizes, axis=0) / self.peak_flops

    def predicted(self, shares: Array) -> Array:
        """Seconds of every product from the shares at the nodes."""
        return np.maximum(self.flops_s / surface.at(self.axes, shares, self.sizes), self.bytes_s) + self.extra_s

    def fitted(self, seen: Array) -> Array:
        """Shares at the nodes, from the products that are seen (bool[products])."""
        arithmetic_s = np.maximum(self.seconds - self.extra_s, self.flops_s)
        told = (self.bytes_s < BOUND_BY_BYTES * arithmetic_s) & (self.extra_s < self.seconds / 2)
        weights = np.where(told, 1.0, LITTLE_WEIGHT)
        sizes = [size[seen] for size in self.sizes]
        return surface.fitted(self.axes, sizes, (self.flops_s / arithmetic_s)[seen], weights[seen])


def read_products(folder: Path, system: System, gpu: GpuSpec, dtype: str) -> Products:
    """Return the measured products of a GPU.

    The median over the library's kernels for bf16; the fastest for fp8, which cast the first operand as they run (with
    few columns they take the time of the cast, a bf16 read and an fp8 write, above half of bf16's time).
    """
    rows = sources.read(folder, sources.GEMM, lambda row: row["system"] == system.name and row["dt"] == dtype)
    m, n, k = (sources.column(rows, name) for name in "mnk")
    microseconds = sources.column(rows, "lat_us_med" if dtype == "bf16" else "lat_us_min")
    moved = OPERAND_BYTES[dtype] * (m * k + k * n) + OUTPUT_BYTES * m * n
    bandwidth = gpu.memory_bandwidth_bytes_per_s * system.bandwidth_fraction
    cast = CAST_BYTES[dtype] * m * k
    extra_s = system.launch_s + cast / bandwidth
    axes = (np.unique(m), np.unique(n), np.unique(k))
    return Products((m, n, k), microseconds * 1e-6, gpu.peak_flops[dtype], moved / bandwidth, extra_s, axes)


def read_l4_products(folder: Path, system: System, gpu: GpuSpec) -> Products:
    """Return the products that Mist timed on an L4 at free clocks (bf16's rate in fp16), forward only.

    Its own backward is slower at free clocks and as fast at locked ones: it is the card's power, not the layout.
    Those under `LEAST_FLOPS` are left out: they show the host's launches.
    """
    rows = sources.read(folder, sources.L4_OPERATORS, lambda row: row["db"] == "backup" and "fused_dense" in row["op"])
    shapes = [[[int(side) for side in part.split("x")] for part in row["shapes"].split(";")] for row in rows]
    m = np.array([float(np.prod(left[:-1])) for left, _ in shapes])
    k = np.array([float(left[-1]) for left, _ in shapes])
    n = np.array([float(np.prod(right)) / left[-1] for left, right in shapes])
    seconds = sources.column(rows, "fwd_mean_s")
    large = 2 * m * n * k >= LEAST_FLOPS
    m, n, k, seconds = m[large], n[large], k[large], seconds[large]
    bandwidth = gpu.memory_bandwidth_bytes_per_s * system.bandwidth_fraction
    bytes_s = OUTPUT_BYTES * (m * k + k * n + m * n) / bandwidth
    launch_s = np.full(len(m), system.launch_s)
    return Products((m, n, k), seconds, gpu.peak_flops["bf16"], bytes_s, launch_s, L4_AXES)


def product_table(products: Products, layouts: dict[str, float], measured: list[str]) -> dict[str, Any]:
    """Return the fields of a GemmTable."""
    shares = products.fitted(np.ones(len(products.seconds), dtype=bool))
    rows, columns, inner = np.meshgrid(*products.axes, indexing="ij")
    sides = [(side >= USUAL_SIDES[0]) & (side <= USUAL_SIDES[1]) for side in (columns, inner)]
    usual = shares[(rows >= USUAL_ROWS) & sides[0] & sides[1]]
    step = len(layouts) / sum(1 / rate for rate in layouts.values())  # the level of a step's three passes together
    names = ("rows", "columns", "inner")
    return {
        "axes": {name: [float(node) for node in axis] for name, axis in zip(names, products.axes, strict=True)},
        "shares": surface.rounded(shares),
        "reference_share": round(step * float(np.median(usual)), 3),
        "layouts": layouts,
        "measured": measured,
    }


def layout_rates(folder: Path, nearest: str) -> dict[str, float]:
    """Return what each layout reaches of the forward's rate in measured training products: the ratio of medians.

    The weight gradient counts where it is accumulated in fp32, as training does.
    """
    shares = training_shares(folder, nearest)
    return {layout: round(min(1.0, share / shares["forward"]), 3) for layout, share in shares.items()}


def training_shares(folder: Path, nearest: str) -> dict[str, float]:
    """Return the median share of the peak of measured training products, by layout."""
    shares = {}
    for layout, letters in LAYOUTS.items():
        rows = sources.read(
            folder, sources.TRAINING_GEMM, lambda row, letters=letters: _is_training(row, nearest, letters)
        )
        shares[layout] = float(np.median(sources.column(rows, "efficiency")))
    return shares


def _is_training(row: sources.Row, system: str, letters: str) -> bool:
    output = "fp32" if letters == "NT" else "bf16"
    return row["system"] == system and row["layout"] == letters and row["out_dtype"] == output


def best_roofline(products: Products) -> Array:
    """Return the seconds of the roofline with the least mean error: one share, bandwidth and launch for all shapes."""
    best, least = products.seconds, np.inf
    for share in np.arange(0.3, 0.96, 0.02):
        for stretch in (0.8, 0.9, 1.0, 1.2, 1.4, 1.6, 2.0):  # of the bandwidth's share that bytes_s has
            for launch_s in (1e-6, 2e-6, 3e-6, 4e-6, 6e-6, 8e-6, 1e-5):
                seconds = np.maximum(products.flops_s / share, products.bytes_s * stretch) + launch_s
                error = float(np.mean(np.abs(seconds / products.seconds - 1)))
                best, least = (seconds, error) if error < least else (best, least)
    return best

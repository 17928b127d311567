"""Tables of collectives inside a node: the share of a link's line rate by operation, ranks and bytes."""

from pathlib import Path
from typing import Any

import numpy as np

from cost_models import surface
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.profile import HardwareProfile
from profiles import sources
from profiles.sources import Array, System

OPERATIONS = {
    "all_gather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "all_reduce",
    "all_to_all": "alltoall",
}
ELEMENT_BYTES = 2.0  # the tables count fp16 elements
BYTES = 2.0 ** np.arange(10, 31)
L4_RANKS = np.array([2.0, 4.0, 8.0])
REDUCED = 1.1  # seconds of a reduce-scatter over those of a gather, in Mist's cost model


def collective_tables(folder: Path, system: System, gpu: GpuSpec, profile: HardwareProfile) -> dict[str, Any] | None:
    """Return the fields of CollectiveTables; None for GPUs without NVLink.

    The one that was measured over PCIe without peer access reached 4 % of its line rate: its host's fault.
    """
    if not gpu.nvlink_bandwidth_bytes_per_s:
        return None
    operations = {}
    for name in OPERATIONS:
        axes, sizes, shares = points(folder, system, gpu, name)
        fitted = surface.fitted(axes, sizes, shares, np.ones(len(shares)))
        operations[name] = {
            "axes": {"ranks": axes[0].tolist(), "bytes": axes[1].tolist()},
            "shares": surface.rounded(fitted),
        }
    return {
        "kind": "nvlink",
        "line_rate_bytes_per_s": gpu.nvlink_bandwidth_bytes_per_s,
        "reference_share": profile.link_fraction["nvlink"],
        "operations": operations,
    }


def l4_tables(folder: Path, profile: HardwareProfile, line_rate_bytes_per_s: float) -> dict[str, Any]:
    """Return the fields of CollectiveTables of the L4's PCIe, from the lines that Mist measured for 2, 4 and 8 GPUs.

    Its rates are GiB/s and its reduce-scatter takes 1.1 times a gather, as its cost model reads them. An all-reduce is
    counted as both, which are the halves of a ring.
    """
    rows = sources.read(folder, sources.L4_LINKS, lambda row: row["gpu"] == "l4")
    values = {row["param"]: float(row["value"]) for row in rows}
    names = [f"g2g_inter1_intra{ranks:.0f}" for ranks in L4_RANKS]
    rate = np.array([[2**30 * values[f"{name}_GBps"]] for name in names])
    latency_s = np.array([[values[f"{name}_beta_s"]] for name in names])
    passed = BYTES * (L4_RANKS - 1)[:, None] / L4_RANKS[:, None]
    gather_s = passed / rate + latency_s
    seconds = {"all_gather": gather_s, "reduce_scatter": REDUCED * gather_s, "all_reduce": (1 + REDUCED) * gather_s}
    axes = {"ranks": L4_RANKS.tolist(), "bytes": BYTES.tolist()}
    return {
        "kind": "pcie",
        "line_rate_bytes_per_s": line_rate_bytes_per_s,
        "reference_share": profile.link_fraction["pcie"],
        "operations": {
            name: {"axes": axes, "shares": surface.rounded(passed / line_rate_bytes_per_s / taken_s)}
            for name, taken_s in seconds.items()
        },
    }


def points(
    folder: Path, system: System, gpu: GpuSpec, name: str
) -> tuple[tuple[Array, Array], tuple[Array, Array], Array]:
    """Return (nodes of ranks and bytes), (ranks, bytes) and shares of every measurement, all library versions."""
    operation = OPERATIONS[name]
    rows = sources.read(
        folder, sources.COLLECTIVES, lambda row: row["system"] == system.name and row["op"] == operation
    )
    ranks, size = sources.column(rows, "n"), ELEMENT_BYTES * sources.column(rows, "message_size")
    seconds = 1e-6 * sources.column(rows, "lat_us")
    shares = size * (ranks - 1) / ranks / seconds / gpu.nvlink_bandwidth_bytes_per_s
    asked = size >= BYTES[0]
    return (np.unique(ranks), BYTES), (ranks[asked], size[asked]), shares[asked]

"""The measurement files: what they are called, whose they are, and how their columns are read."""

import csv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Row = dict[str, str]

GEMM = "aiconf_gemm_train_shapes.csv"
ATTENTION = "aiconf_context_attention_fwd.csv"
LATENT_ATTENTION = "aiconf_context_mla_fwd.csv"
EXPERTS = "aiconf_moe_fused_ep1.csv"
L4_OPERATORS = "op_latency_l4.csv"
L4_LINKS = "hardware_params.csv"
COLLECTIVES = "aiconf_nccl_latency.csv"
TRAINING_GEMM = "simumax_gemm_eff.csv"
TRAINING_GROUPS = "simumax_grouped_gemm_eff.csv"
TRAINING_ATTENTION = "simumax_attention_eff.csv"

AICONFIGURATOR = "NVIDIA aiconfigurator (github.com/ai-dynamo/aiconfigurator, Apache-2.0)"
MIST = "Mist's artifact (EuroSys '25, Apache-2.0)"
SIMUMAX = "SimuMax (Apache-2.0)"


@dataclass(frozen=True)
class System:
    """One measured GPU: its profile, the catalog's names of it, and what SimuMax calls the nearest that it measured.

    `trained` tells whether SimuMax measured this GPU itself: layouts, groups and backward passes of the others are its
    nearest's. From one of another generation only what a weight gradient loses to a forward carries over of its groups:
    serving's fused experts on H100 reach a half-filled tile's share forward. `bandwidth_fraction` and `launch_s` are
    the constants that are taken out of every product.
    """

    name: str
    profile: str
    gpus: tuple[str, ...]
    nearest: str
    trained: bool
    same_generation: bool
    bandwidth_fraction: float = 0.8
    launch_s: float = 3e-6


SYSTEMS = (
    System("a100_sxm", "a100-80-sxm", ("a100-40-sxm", "a100-80-sxm"), "a100_pcie", trained=True, same_generation=True),
    System("h100_sxm", "h100-sxm", ("h100-sxm",), "a100_pcie", trained=False, same_generation=False),
    System("h200_sxm", "h200", ("h200",), "a100_pcie", trained=False, same_generation=False),
    System("b200_sxm", "b200", ("b200",), "b200_bf16_ceperm", trained=True, same_generation=True),
    System("b300_sxm", "b300", ("b300",), "b200_bf16_ceperm", trained=False, same_generation=True),
    System("gb200", "gb200", ("gb200",), "b200_bf16_ceperm", trained=False, same_generation=True),
    # Its second-level cache is large beside its memory's bandwidth: a measured 0.9 where the others keep 0.8.
    System(
        "l40s",
        "l40s",
        ("l40s",),
        "a100_pcie",
        trained=False,
        same_generation=False,
        bandwidth_fraction=0.9,
        launch_s=2e-6,
    ),
)

L4 = System("l4", "l4", ("l4",), "", trained=True, same_generation=True)


def read(folder: Path, name: str, wanted: Callable[[Row], bool]) -> list[Row]:
    """Return the wanted rows of a CSV file somewhere in a folder. Raises FileNotFoundError."""
    path = next(folder.rglob(name), None)
    if path is None:
        message = f"{folder} holds no {name}"
        raise FileNotFoundError(message)
    with path.open(encoding="utf-8", newline="") as file:
        return [row for row in csv.DictReader(file) if wanted(row)]


def column(rows: list[Row], name: str) -> Array:
    """Return one column as numbers, float[rows]."""
    return np.array([float(row[name]) for row in rows])

"""Distil measured kernels into the tables of data/profiles, one JSON file for each measured GPU.

    python scripts/build_profiles.py SOURCE_FOLDER            write the tables
    python scripts/build_profiles.py SOURCE_FOLDER --check    print what they predict of shapes that they did not see

The folder holds the CSV files that `profiles/sources.py` names, with their licences. Profiles without `tables` are
rooflines or scaled from these (cost_models/specs/scaled_profile.py).
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from profiles import attention, collectives, groups, products, sources
from profiles.sources import L4, SYSTEMS, Array, System

from cost_models import surface
from cost_models.specs.catalog import load_cluster, load_gpu, load_profile
from cost_models.specs.data import data_folder
from cost_models.specs.files import json_text
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.kernel_tables import KernelTables

STEP_S = 3e-6  # latency of a step over NVLink in the cluster presets


def main() -> None:
    """Write the tables, or print their errors."""
    parser = argparse.ArgumentParser(description="Distil measured kernels into the tables of data/profiles.")
    parser.add_argument("folder", type=Path, help="folder of the measurement files")
    parser.add_argument("--check", action="store_true", help="print cross-validated errors; write nothing")
    arguments = parser.parse_args()
    for system in (*SYSTEMS, L4):
        if arguments.check:
            print("\n".join(checked(arguments.folder, system)), flush=True)
            continue
        fields = l4_tables(arguments.folder) if system is L4 else tables(arguments.folder, system)
        KernelTables.model_validate(fields)
        path = data_folder() / "profiles" / f"{system.profile}.json"
        path.write_text(json_text(fields), encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1000:.0f} kB", flush=True)


def tables(folder: Path, system: System) -> dict[str, Any]:
    """Return the fields of the KernelTables of one GPU."""
    gpu, profile = load_gpu(system.profile), load_profile(system.profile)
    layouts = products.layout_rates(folder, system.nearest)
    measured = list(layouts) if system.trained else ["forward"]
    gemm = {}
    for dtype in sorted(gpu.peak_flops):
        known = measured if dtype == "bf16" else ["forward"]  # the layouts were measured in bf16
        gemm[dtype] = products.product_table(products.read_products(folder, system, gpu, dtype), layouts, known)
    return {
        "gpus": list(system.gpus),
        "gemm": gemm,
        "grouped_gemm": groups.group_tables(folder, system, products.training_shares(folder, system.nearest)),
        "attention": attention.attention_table(folder, system, gpu, profile),
        "collectives": collectives.collective_tables(folder, system, gpu, profile),
        "sources": described(system, gpu),
    }


def l4_tables(folder: Path) -> dict[str, Any]:
    """Return the fields of the KernelTables of the L4: products, and collectives over PCIe."""
    layouts = dict.fromkeys(products.LAYOUTS, 1.0)
    measured = products.read_l4_products(folder, L4, load_gpu(L4.profile))
    rate = load_cluster("l4-pcie", 1).tiers[0].bandwidth_bytes_per_s
    source = f"{sources.MIST}, NVIDIA L4, free clocks, forward and, at locked clocks as fast, backward"
    return {
        "gpus": list(L4.gpus),
        "gemm": {"bf16": products.product_table(measured, layouts, list(layouts))},
        "collectives": collectives.l4_tables(folder, load_profile(L4.profile), rate),
        "sources": {
            "gemm": source,
            "collectives": f"{sources.MIST}, template-l4.yaml: a rate and a latency for 2, 4 and 8 GPUs, fitted by its "
            "authors; reduce-scatter 1.1 gathers, all-reduce both",
        },
    }


def described(system: System, gpu: GpuSpec) -> dict[str, str]:
    """Return where each table of a GPU is from."""
    training = f"{sources.SIMUMAX} {system.nearest}, throttled training kernels"
    carried = "" if system.trained else "; carried over from the nearest GPU that was measured"
    bf16, fp8 = "bf16: median over the library's kernels", "fp8: the fastest without the cast of its first operand"
    described = {
        "gemm": f"{sources.AICONFIGURATOR}, {system.name}, isolated, forward layout; {bf16}, {fp8}; "
        f"layouts: {training}{carried}",
        "grouped_gemm": f"{training}{carried}",
        "attention": f"{sources.AICONFIGURATOR}, {system.name}, fastest kernel, head_dim 160: latent attention; "
        f"backward over forward: {training}{carried}",
    }
    if gpu.nvlink_bandwidth_bytes_per_s:
        described["collectives"] = f"{sources.AICONFIGURATOR}, {system.name}, NCCL of all versions measured"
    return described


def checked(folder: Path, system: System) -> list[str]:
    """Return a line for each table of a GPU: errors on shapes that the fit did not see, beside a roofline's."""
    gpu = load_gpu(system.profile)
    if system is L4:
        return [_product_errors("l4 gemm bf16", products.read_l4_products(folder, system, gpu))]
    lines = [
        _product_errors(f"{system.profile} gemm {dtype}", products.read_products(folder, system, gpu, dtype))
        for dtype in sorted(gpu.peak_flops)
    ]
    for head_dim, (sizes, shares) in attention.best_points(folder, system.name).items():
        predicted = surface.held_out(lambda seen, d=(sizes, shares): _attention_unseen(*d, seen), len(shares))
        roofline = attention.roofline_shares(sizes, gpu, load_profile(system.profile))
        lines.append(
            f"{system.profile} attention head_dim {head_dim:g}: {_figures(shares / predicted)}; "
            f"constants: {_figures(shares / roofline)}"
        )
    return [*lines, *_collective_errors(folder, system, gpu)]


def _collective_errors(folder: Path, system: System, gpu: GpuSpec) -> list[str]:
    """Return a line for each collective, beside the constants' one latency and bandwidth, within a node."""
    if not gpu.nvlink_bandwidth_bytes_per_s:
        return []
    lines, profile = [], load_profile(system.profile)
    for name in collectives.OPERATIONS:
        axes, sizes, shares = collectives.points(folder, system, gpu, name)
        predicted = surface.held_out(
            lambda seen, axes=axes, sizes=sizes, shares=shares: surface.at(
                axes, surface.fitted(axes, [s[seen] for s in sizes], shares[seen], np.ones(seen.sum())), sizes
            ),
            len(shares),
        )
        ranks, size = sizes
        rate = gpu.nvlink_bandwidth_bytes_per_s * profile.link_fraction["nvlink"]
        passes = 2 if name == "all_reduce" else 1
        passed = size * (ranks - 1) / ranks
        alpha = (0 if name == "all_to_all" else ranks - 2) * STEP_S + STEP_S + profile.collective_base_latency_s
        constant = passes * (passed / rate + alpha)
        measured = passed / gpu.nvlink_bandwidth_bytes_per_s / shares
        lines.append(
            f"{system.profile} {name}: {_figures(shares / predicted)}; constants: {_figures(constant / measured)}"
        )
    return lines


def _product_errors(name: str, measured: products.Products) -> str:
    predicted = surface.held_out(lambda seen: measured.predicted(measured.fitted(seen)), len(measured.seconds))
    return (
        f"{name}: {_figures(predicted / measured.seconds)}; "
        f"roofline, fitted to all: {_figures(products.best_roofline(measured) / measured.seconds)}"
    )


def _attention_unseen(sizes: tuple[Array, Array], shares: Array, seen: Array) -> Array:
    rows, lengths = sizes
    plane = attention.plane((rows[seen], lengths[seen]), shares[seen])
    return surface.at(attention.SURFACE_AXES, plane, sizes)


def _figures(ratios: Array) -> str:
    errors = np.abs(ratios - 1)
    return f"{len(errors)} shapes, error median {np.median(errors):.1%}, p90 {np.quantile(errors, 0.9):.1%}"


if __name__ == "__main__":
    main()

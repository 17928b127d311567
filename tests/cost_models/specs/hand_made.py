"""A measured profile written by hand: two ranks of one core each, every part measured, figures that are easy to check.

Products reach 60 GFLOP/s and less with few rows, memory 10 GB/s, links 2 GB/s and 50 us; nothing here is a measurement.
"""

from typing import Any

from cost_models.specs.measured_profile import MeasuredProfile

NAME = "two-cores"
PEAK_FLOPS, BANDWIDTH, LINK, COPY = 60e9, 10e9, 2e9, 8e9
SIZES = [64.0, 512.0, 4096.0]
BYTES = [1024.0, 65536.0, 4194304.0, 268435456.0]
LATENCY_S = 5e-5
KINDS = (
    *("norm_forward", "norm_backward", "activation_forward", "activation_backward", "rotary_forward"),
    *("rotary_backward", "residual_forward", "residual_backward", "loss_forward", "loss_backward"),
    *("embedding_forward", "embedding_backward", "optimizer_step", "other"),
)
PARTS = (
    *("gemm", "grouped_gemm", "attention", "elementwise", "launch", "collectives", "copies", "interference"),
    *("context", "communicator", "allocator", "host_memory"),
)


def fields() -> dict[str, Any]:
    """The content of the file, changed at will by a test."""
    return {"format": "meshplan profile", "schema_version": 1, "cluster": cluster(), "profile": profile()}


def measured() -> MeasuredProfile:
    """The profile."""
    return MeasuredProfile.model_validate(fields())


def cluster() -> dict[str, Any]:
    """Two ranks on one host."""
    return {
        "name": "two cores",
        "gpu": {
            "name": NAME,
            "nominal_memory_bytes": 4 * 10**9,
            "usable_memory_bytes": 4 * 2**30,
            "memory_bandwidth_bytes_per_s": BANDWIDTH,
            "peak_flops": {"bf16": PEAK_FLOPS},
            "streaming_multiprocessors": 1,
            "nvlink_bandwidth_bytes_per_s": 0.0,
            "pcie_bandwidth_bytes_per_s": COPY,
            "power_w": 50.0,
        },
        "gpus": 2,
        "gpus_per_node": 2,
        "tiers": [
            {
                "name": "gloo",
                "kind": "network",
                "domain_gpus": None,
                "link_bandwidth_bytes_per_s": LINK,
                "links_per_gpu": 1.0,
                "latency_s": LATENCY_S,
            }
        ],
        "host_memory_bytes": 8 * 2**30,
        "host_memory_bandwidth_bytes_per_s": BANDWIDTH,
        "host_to_device_bandwidth_bytes_per_s": COPY,
    }


def profile() -> dict[str, Any]:
    """Neutral constants, tables of everything, and their provenance."""
    table = {"points": 30, "repetitions": 20, "spread": 0.02, "largest_spread": 0.09, "outliers_dropped": 3}
    return {
        "name": "two-cores-hand-made",
        "gpu": NAME,
        "gemm": {"bf16": {"peak_fraction": 1.0, "bandwidth_fraction": 1.0, "launch_s": 1e-5}},
        "attention": {"peak_fraction": 0.5, "half_length": 200.0},
        "elementwise": {"bandwidth_fraction": 0.8, "launch_s": 1e-5},
        "host_launch_s": 2e-5,
        "sustained_fraction": 1.0,
        "link_fraction": {"network": 1.0},
        "collective_base_latency_s": 1e-5,
        "overlap": {"compute_slowdown": 1.8, "communication_slowdown": 1.9},
        "slowdowns": {
            "gpu": NAME,
            "host": "hand-made",
            "factors": {"compute+collective": {"compute": 1.8, "collective": 1.9}},
        },
        "tables": tables(),
        "context_bytes": 10**8,
        "communicator_bytes": 10**6,
        "fragmentation_fraction": 0.02,
        "provenance": {
            "device": "two cores of a hand-made processor",
            "driver": "none",
            "torch": "2.13.0",
            "versions": {"python": "3.12"},
            "clocks_hz": {"core": 2.5e9},
            "threads": 1,
            "date": "2026-01-31T12:00:00Z",
            "method": "quick",
            "budget_s": 60.0,
            "duration_s": 55.0,
            "ranks": 2,
            "hosts": ["hand-made"],
            "tables": dict.fromkeys(PARTS, table),
        },
        "sources": {"gemm": "written by hand"},
    }


def tables() -> dict[str, Any]:
    """Tables of every kind: products that lose with few rows, links of one latency and one bandwidth."""
    product = [rows / (rows + 64) for rows in SIZES for _ in range(9)]
    links = [1 / (1 + LATENCY_S * LINK / size) for _ in (2, 4) for size in BYTES]
    curve = {"axes": {"ranks": [2.0, 4.0], "bytes": BYTES}, "shares": links}
    product_axes = {"rows": SIZES, "columns": SIZES, "inner": SIZES}
    weight_grad = [inner / (inner + 128) for _ in range(9) for inner in SIZES]
    elementwise = {"axes": {"bytes": BYTES}, "shares": [0.01, 0.3, 0.8, 0.9]}
    copies = {"axes": {"bytes": BYTES}, "shares": [0.02, 0.4, 0.9, 0.95]}
    return {
        "gpus": [NAME],
        "gemm": {
            "bf16": {
                "axes": product_axes,
                "shares": product,
                "reference_share": 1.0,
                "layouts": {"forward": 1.0, "input_grad": 0.9, "weight_grad": 1.0},
                "by_layout": {"weight_grad": {"axes": product_axes, "shares": weight_grad}},
                "measured": ["forward", "input_grad", "weight_grad"],
            }
        },
        "grouped_gemm": {
            layout: {"axes": {"rows": [16.0, 256.0]}, "shares": [0.2, 0.9], "measured": True}
            for layout in ("forward", "input_grad", "weight_grad")
        },
        "attention": {
            "axes": {"rows": [256.0, 65536.0], "keys": [128.0, 2048.0], "head_dim": [64.0]},
            "shares": [0.1, 0.2, 0.2, 0.4],
            "backward_shares": [0.08, 0.15, 0.15, 0.3],
            "reference_share": 0.5,
            "within": {"streams": [1.0, 64.0], "keys": [128.0, 2048.0], "head_dim": [64.0, 64.0]},
            "measured": ["forward", "backward"],
        },
        "elementwise": dict.fromkeys(KINDS, elementwise),
        "collectives": {
            "kind": "network",
            "line_rate_bytes_per_s": LINK,
            "reference_share": 1.0,
            "operations": dict.fromkeys(
                ("all_gather", "reduce_scatter", "all_reduce", "all_to_all", "send"),
                curve,
            ),
        },
        "copies": {
            "line_rate_bytes_per_s": COPY,
            "directions": dict.fromkeys(("host_to_device", "device_to_host"), copies),
        },
        "sources": {"gemm": "written by hand"},
    }

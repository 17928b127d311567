"""A measurement -> the file's content: devices, constants, tables, and where each is from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import torch

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.measured_profile import MeasuredProfile
from profiler.beside import factors_of
from profiler.candidates import GEMMS, HOST_COPIES, IN_PLACE, LINKS, Counted
from profiler.device import Facts
from profiler.points import Measured
from profiler.tables import Peaks, measured_table, peaks, tables

__all__ = ["About", "profile_of"]

Method = Literal["quick", "full"]
ASSUMED_POWER_W = 100.0
NOT_MEASURED = "not measured: an assumption that nothing here depends on"
PARTS: Mapping[str, tuple[str, ...]] = {
    "gemm": GEMMS,
    "attention": ("attention_forward", "attention_backward"),
    "launch": ("launch",),
    "layers": IN_PLACE,
    "collectives": LINKS,
    "host_memory": ("memory_copy",),
    "copies": HOST_COPIES,
}


@dataclass(frozen=True)
class About:
    """What a measurement was: of which devices, how."""

    facts: Facts
    kind: Literal["cpu", "cuda"]
    ranks: int
    method: Method
    budget_s: float
    duration_s: float
    known: ClusterSpec | None = None
    """The catalog's cluster of this device, with its data sheet; None of a device that no catalog knows."""
    context_bytes: int = 0
    communicator_bytes: int = 0
    notes: tuple[str, ...] = ()


def profile_of(measured: Sequence[Measured], counted: Counted, about: About) -> MeasuredProfile:
    """The profile of what was measured. Raises SpecError where it cannot be one."""
    known = about.known.gpu if about.known else None
    sheet = (
        {"flops": known.peak_flops["bf16"], "memory_bytes_per_s": known.memory_bandwidth_bytes_per_s} if known else None
    )
    peak = peaks(measured, sheet)
    cluster = _cluster(about, peak)
    device = cluster["gpu"]["name"]
    kind = cluster["tiers"][0]["kind"]
    fields = {"cluster": cluster, "profile": _profile(measured, counted, about, peak, device, kind)}
    return MeasuredProfile.model_validate(fields)


def _cluster(about: About, peak: Peaks) -> dict[str, Any]:
    """The devices and their links."""
    facts, ranks = about.facts, about.ranks
    if about.known is not None:
        gpu = about.known.gpu.replaced(usable_memory_bytes=facts.memory_bytes)
        cluster = about.known.replaced(
            gpu=gpu, gpus=ranks, gpus_per_node=ranks, host_memory_bytes=facts.host_memory_bytes
        )
        return cluster.model_dump(mode="json")
    gpu_fields = {
        "name": facts.name,
        "nominal_memory_bytes": facts.memory_bytes,
        "usable_memory_bytes": facts.memory_bytes,
        "memory_bandwidth_bytes_per_s": peak.memory_bytes_per_s,
        "peak_flops": {"bf16": peak.flops},
        "streaming_multiprocessors": facts.multiprocessors,
        "nvlink_bandwidth_bytes_per_s": 0.0,
        "pcie_bandwidth_bytes_per_s": peak.memory_bytes_per_s,
        "power_w": ASSUMED_POWER_W,
        "sources": {
            "peak_flops": "the fastest product that was measured",
            "memory_bandwidth_bytes_per_s": "the fastest copy that was measured, bytes read and written",
            "power_w": NOT_MEASURED,
        },
    }
    tier = {
        "name": "gloo" if about.kind == "cpu" else "links of this host",
        "kind": "network" if about.kind == "cpu" else "pcie",
        "domain_gpus": None,
        "link_bandwidth_bytes_per_s": peak.link_bytes_per_s,
        "links_per_gpu": 1.0,
        "latency_s": peak.link_latency_s,
    }
    return {
        "name": f"{facts.host}: {ranks} ranks",
        "gpu": gpu_fields,
        "gpus": ranks,
        "gpus_per_node": ranks,
        "tiers": [tier],
        "host_memory_bytes": facts.host_memory_bytes,
        "host_memory_bandwidth_bytes_per_s": peak.memory_bytes_per_s,
        "host_to_device_bandwidth_bytes_per_s": peak.memory_bytes_per_s,
        "sources": {
            "tiers": "the fastest collective and the shortest hop that were measured" if ranks > 1 else NOT_MEASURED
        },
    }


def _profile(
    measured: Sequence[Measured], counted: Counted, about: About, peak: Peaks, device: str, kind: str
) -> dict[str, Any]:
    factors = factors_of(measured)
    pair = factors.get("compute+collective", {})
    found = tables(measured, peak, counted, device, kind)
    links = {"network": 1.0, kind: 1.0}
    if about.known is not None:
        links |= {tier.links: 1.0 for tier in about.known.tiers}
    return {
        "name": f"{about.facts.host}, {device}",
        "gpu": device,
        "gemm": {"bf16": {"peak_fraction": 1.0, "bandwidth_fraction": 1.0, "launch_s": 0.0}},
        "attention": {"peak_fraction": 1.0, "half_length": 0.0},
        "elementwise": {"bandwidth_fraction": 1.0, "launch_s": peak.launch_s},
        "host_launch_s": peak.launch_s,
        "sustained_fraction": 1.0,
        "link_fraction": links,
        "collective_base_latency_s": 0.0,
        "overlap": {
            "compute_slowdown": pair.get("compute", 1.0),
            "communication_slowdown": pair.get("collective", 1.0),
        },
        **({"slowdowns": {"gpu": device, "host": about.facts.host, "factors": factors}} if factors else {}),
        "tables": found,
        "context_bytes": about.context_bytes,
        **({"communicator_bytes": about.communicator_bytes} if about.kind == "cpu" or about.communicator_bytes else {}),
        "provenance": _provenance(measured, about),
        "sources": {"tables": "plan profile on this host: medians of isolated operators, all ranks at work"},
    }


def _provenance(measured: Sequence[Measured], about: About) -> dict[str, Any]:
    facts = about.facts
    of_part = {part: [one for one in measured if one.point.operator in names] for part, names in PARTS.items()}
    if about.kind == "cuda":  # a copy on the device says nothing of the host's memory
        of_part["host_memory"] = []
    in_parts = {name for names in PARTS.values() for name in names}
    of_part["elementwise"] = [
        one for one in measured if one.point.operator not in in_parts and ":" not in one.point.operator
    ]
    of_part["interference"] = [one for one in measured if ":" in one.point.operator]
    found = {part: measured_table(rows) for part, rows in of_part.items()}
    once = {"points": 1, "repetitions": 1, "spread": 0.0, "largest_spread": 0.0}
    if about.kind == "cpu" or about.context_bytes:  # of a process's own memory nothing is set aside
        found["context"] = once
    if about.kind == "cpu" or about.communicator_bytes:
        found["communicator"] = once
    return {
        "device": facts.device,
        "driver": facts.driver,
        "torch": torch.__version__,
        "versions": facts.versions,
        "clocks_hz": facts.clocks_hz,
        "threads": facts.threads,
        "date": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "method": about.method,
        "budget_s": about.budget_s,
        "duration_s": max(about.duration_s, 1e-3),
        "ranks": about.ranks,
        "hosts": [facts.host],
        "notes": list(about.notes),
        "tables": {part: table for part, table in found.items() if table is not None},
    }

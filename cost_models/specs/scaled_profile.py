"""Profiles of GPUs without measurements of their own: the shares that a measured GPU reaches, at another power.

Profiles hold shares of a GPU's own peaks, so most of them carry over as they are. What does not is the clock that a
board can hold: dynamic power grows with about the cube of the clock, so a board with fewer watts for each peak FLOP/s
sustains the cube root of that ratio. And where the GEMMs of a GPU are known to reach another share of its peak than the
reference's, they were measured at its own power, and attention is taken to follow: it runs on the same units.
"""

from collections.abc import Mapping
from typing import Any

from cost_models.specs.gpu import GpuSpec
from cost_models.specs.profile import HardwareProfile


def scaled_fields(
    reference: HardwareProfile, reference_gpu: GpuSpec, gpu: GpuSpec, known: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the fields of a profile for `gpu`: those that are `known`, the others from the reference.

    GEMM types that `gpu` has no peak for are left out; sources say what was scaled from where.
    """
    fields = reference.model_dump(mode="json")
    measured = known.get("gemm", {}).get("bf16")
    ratio = 1.0 if measured else sustained_ratio(reference_gpu, gpu)
    fields["gemm"] = {kind: roofline for kind, roofline in fields["gemm"].items() if kind in gpu.peak_flops}
    fields["sustained_fraction"] = round(reference.sustained_fraction * ratio, 3)
    if measured:
        share = measured["peak_fraction"] / reference.gemm["bf16"].peak_fraction
        fields["attention"]["peak_fraction"] = round(min(1.0, reference.attention.peak_fraction * share), 3)
    origin = f"scaled from {reference.name}"
    sources = {name: f"{origin}: {text}" for name, text in reference.sources.items()}
    if ratio < 1:
        rule = f"times {ratio:.3f} for {gpu.power_w:g} W"
        sources["sustained_fraction"] = f"{origin}, {rule}: {reference.sources.get('sustained_fraction', '')}"
    return {**fields, **known, "sources": {**sources, **known.get("sources", {})}}


def sustained_ratio(reference: GpuSpec, gpu: GpuSpec) -> float:
    """Return the clock that `gpu` sustains over that of the reference: the cube root of watts per FLOP/s, at most 1.

    >>> from cost_models.specs.catalog import load_gpu
    >>> round(sustained_ratio(load_gpu("h100-sxm"), load_gpu("h100-sxm-96")), 3)
    0.894
    """
    watts = [card.power_w / card.peak_flops["bf16"] for card in (gpu, reference)]
    return min(1.0, float((watts[0] / watts[1]) ** (1 / 3)))

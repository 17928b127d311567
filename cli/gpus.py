"""`plan gpus`: the GPUs of the catalog."""

from cli.listing import print_listing
from cost_models.specs.catalog import load_gpu, names


def gpus(*, as_json: bool) -> int:
    """Prints the GPUs; the exit code."""
    specs = [load_gpu(name) for name in names("gpus")]
    texts = {"GPU": [spec.name for spec in specs]}
    figures = {
        "label GB": [f"{spec.nominal_memory_bytes / 1e9:.0f}" for spec in specs],
        "usable GiB": [f"{spec.usable_memory_bytes / 2**30:.1f}" for spec in specs],
        "TB/s": [f"{spec.memory_bandwidth_bytes_per_s / 1e12:.2f}" for spec in specs],
        "bf16 TFLOP/s": [_peak(spec.peak_flops.get("bf16")) for spec in specs],
        "fp8 TFLOP/s": [_peak(spec.peak_flops.get("fp8")) for spec in specs],
        "NVLink GB/s": [f"{spec.nvlink_bandwidth_bytes_per_s / 1e9:.0f}" for spec in specs],
    }
    return print_listing("gpus", specs, texts, figures, as_json=as_json)


def _peak(flops: float | None) -> str:
    return "-" if flops is None else f"{flops / 1e12:,.0f}"

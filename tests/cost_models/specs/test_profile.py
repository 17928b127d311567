"""The shipped attention constants are the ones that the fitting script finds, with the error they claim."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

from cost_models.specs.catalog import load_gpu, load_profile, names

SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "fit_attention_constants.py"


def fitting_script() -> ModuleType:
    """Return scripts/fit_attention_constants.py as a module."""
    spec = importlib.util.spec_from_file_location("fit_attention_constants", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("system", "gpu", "largest_mean_error"),
    [("a100_sxm", "a100-80-sxm", 0.15), ("h100_sxm", "h100-sxm", 0.05), ("b200_sxm", "b200", 0.16)],
)
def test_attention_constants_are_the_fitted_ones(system: str, gpu: str, largest_mean_error: float) -> None:
    """Refitting the table of the script gives the constants of the data file and the error its source names."""
    script, attention = fitting_script(), load_profile(gpu).attention
    assert script.MULTIPROCESSORS[system] == load_gpu(gpu).streaming_multiprocessors
    peak_fraction, half_length, errors = script.fit(script.table_points()[system], script.MULTIPROCESSORS[system])
    assert peak_fraction == pytest.approx(attention.peak_fraction)
    assert half_length == pytest.approx(attention.half_length)
    assert errors.mean() < largest_mean_error
    assert f"mean {errors.mean():.1%}".replace("%", " %") in load_profile(gpu).sources["attention"]


@pytest.mark.parametrize("name", names("profiles"))
def test_no_profile_promises_more_than_the_hardware(name: str) -> None:
    """Every share of a peak is at most 1, and fp8 is named only where the GPU has it."""
    profile, gpu = load_profile(name), load_gpu(name)
    assert profile.gpu == gpu.name
    assert set(profile.gemm) <= set(gpu.peak_flops)
    shares = [gemm.peak_fraction for gemm in profile.gemm.values()] + list(profile.link_fraction.values())
    assert all(0 < share <= 1 for share in shares)
    assert profile.overlap.compute_slowdown >= 1

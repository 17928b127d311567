"""Profiles of GPUs that were not measured: shares of the nearest measured one, at the power of the board."""

from pathlib import Path

import pytest

from cost_models.specs.catalog import load_gpu, load_profile, measured_gpu, names
from cost_models.specs.errors import SpecError, UnknownNameError
from cost_models.specs.scaled_profile import scaled_fields, sustained_ratio

MEASURED = {"a100-40-sxm", "a100-80-sxm", "h100-sxm", "h200", "b200", "l4"}


@pytest.mark.parametrize("name", names("gpus"))
def test_every_gpu_has_a_profile_that_goes_back_to_a_measured_one(name: str) -> None:
    """The six measured GPUs have their own, the others that of one of them, and say so in every source."""
    origin, profile = measured_gpu(name), load_profile(name)
    assert origin in MEASURED
    assert (origin == name) == (name in MEASURED)
    assert profile.gpu == name
    assert set(profile.gemm) <= set(load_gpu(name).peak_flops)
    assert set(profile.sources) == set(load_profile(origin).sources)
    if name not in MEASURED:
        assert profile.sources["context_bytes"].startswith("scaled from ")
        assert profile.sources["overlap"].startswith("scaled from ")


@pytest.mark.parametrize(
    ("name", "reference", "ratio"),
    [
        ("h100-sxm-96", "h100-sxm", (500 / 700) ** (1 / 3)),
        ("h100-pcie", "h100-sxm", (350 / 756 * 989 / 700) ** (1 / 3)),
        ("a100-80-pcie", "a100-80-sxm", (300 / 400) ** (1 / 3)),
        ("h800-sxm", "h100-sxm", 1.0),
        ("v100-32", "a100-40-sxm", 1.0),
    ],
)
def test_a_board_with_less_power_holds_a_lower_clock(name: str, reference: str, ratio: float) -> None:
    """The cube root of watts for each FLOP/s, never above one; the shares of a kernel stay."""
    assert sustained_ratio(load_gpu(reference), load_gpu(name)) == pytest.approx(ratio)
    profile, base = load_profile(name), load_profile(reference)
    assert profile.sustained_fraction == pytest.approx(base.sustained_fraction * ratio, abs=6e-4)
    assert profile.gemm["bf16"] == base.gemm["bf16"]
    assert profile.attention == base.attention
    assert ("for " in profile.sources["sustained_fraction"]) == (ratio < 1)


def test_what_is_known_of_a_gpu_holds_and_attention_follows_its_gemms() -> None:
    """A stated GEMM share was measured at the GPU's own power, so the clock stays; its sources replace the scaled."""
    base, of, to = load_profile("h100-sxm"), load_gpu("h100-sxm"), load_gpu("h100-sxm-96")
    gemm = {"bf16": {"peak_fraction": 0.38, "bandwidth_fraction": 0.5, "launch_s": 1e-6}}
    fields = scaled_fields(base, of, to, {"name": "mine", "gemm": gemm, "sources": {"gemm": "measured"}})
    assert fields["name"] == "mine"
    assert fields["gemm"] == gemm
    assert fields["sustained_fraction"] == base.sustained_fraction
    assert fields["attention"]["peak_fraction"] == round(base.attention.peak_fraction / 2, 3)
    assert fields["sources"]["gemm"] == "measured"
    assert fields["sources"]["attention"].startswith("scaled from h100-sxm: ")


def test_data_types_without_a_peak_are_left_out() -> None:
    """An A10G has no fp8; neither has anything scaled from an A100."""
    assert set(load_profile("a10g").gemm) == set(load_profile("mi250x").gemm) == {"bf16"}
    assert set(load_profile("h100-pcie").gemm) == {"bf16", "fp8"}


def test_a_profile_file_may_be_scaled_too(tmp_path: Path) -> None:
    """A file of one's own states what is known and names an entry for the rest, not a file (it could be itself)."""
    file = tmp_path / "mine.toml"
    file.write_text('name = "mine"\ngpu = "h100-pcie"\nscaled_from = "h100"\nsustained_fraction = 0.5\n')
    profile = load_profile(str(file))
    assert (profile.name, profile.sustained_fraction) == ("mine", 0.5)
    assert profile.attention == load_profile("h100-sxm").attention
    assert measured_gpu(str(file)) == "h100-sxm"
    for reference in (f'"{file}"', "3"):
        file.write_text(f'name = "mine"\ngpu = "h100-pcie"\nscaled_from = {reference}\n')
        with pytest.raises(SpecError, match=r"profile\.scaled_from must be a GPU of the catalog, got"):
            load_profile(str(file))
    file.write_text('name = "mine"\ngpu = "h100-pcie"\nscaled_from = "h1000"\n')
    with pytest.raises(UnknownNameError, match="unknown gpu 'h1000'"):
        load_profile(str(file))

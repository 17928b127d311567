"""Tables of kernels: what makes one valid, and how the catalog finds them."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.catalog import load_profile
from cost_models.specs.data import data_folder
from cost_models.specs.errors import SpecError
from cost_models.specs.kernel_tables import GroupTable, KernelTables, ShareLattice

AXES = {"rows": [256.0, 1024.0], "columns": [512.0, 1024.0, 4096.0]}
FILES = sorted((data_folder() / "profiles").glob("*.json"))


def lattice(**changes: Any) -> dict[str, Any]:
    """Return the fields of a small valid lattice, some changed."""
    return {"axes": AXES, "shares": [0.1, 0.2, 0.3, 0.2, 0.3, 0.4], **changes}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"shares": [0.1, 0.2]}, r"lattice\.shares must be 6, one for each node of \['rows', 'columns'\], got 2"),
        ({"axes": {**AXES, "rows": [256.0, 256.0]}}, r"lattice\.axes\.rows must rise, got \[256\.0, 256\.0\]"),
        (
            {"shares": [0.1, 0.21, 0.3, 0.2, 0.3, 0.4]},
            r"must not rise faster than columns, got 0\.1 at 512, then 0\.21",
        ),
        ({"shares": [0.1, 0.2, 0.3, 0.41, 0.5, 0.6]}, r"must not rise faster than rows, got 0\.1 at 256, then 0\.41"),
        ({"shares": [0.1, 0.2, 0.3, 0.2, 0.3, 1.4]}, r"lattice\.shares\[5\] must be <= 1, got 1\.4"),
    ],
)
def test_a_lattice_that_would_shorten_time_is_refused(changes: dict[str, Any], message: str) -> None:
    """Shares are as many as nodes, at most 1, and rise no faster than any size; the message says where not."""
    assert ShareLattice.model_validate(lattice()).shares[-1] == 0.4
    with pytest.raises(SpecError, match=message):
        ShareLattice.model_validate(lattice(**changes))


def test_groups_of_more_rows_are_never_slower() -> None:
    """A share that falls with the rows of a group would make more groups faster."""
    axes = {"rows": [1.0, 2.0, 4.0]}
    assert GroupTable(axes=axes, shares=(0.1, 0.2, 0.2), measured=True).measured
    with pytest.raises(SpecError, match="shares must not fall with the rows of a group"):
        GroupTable(axes=axes, shares=(0.2, 0.2, 0.1), measured=True)


def test_the_shipped_tables_are_small_and_name_their_sources() -> None:
    """All files together stay under 15 MB, each table names its licence."""
    assert sum(file.stat().st_size for file in FILES) < 15e6
    assert len(FILES) == 8
    for file in FILES:
        tables = KernelTables.model_validate(json.loads(file.read_text()))
        present = {name for name in ("gemm", "grouped_gemm", "attention", "collectives") if getattr(tables, name)}
        assert set(tables.sources) == present
        assert all("Apache-2.0" in source for source in tables.sources.values())
    assert load_profile("h100-sxm").tables is not None


def test_tables_lie_beside_the_profile_that_names_them(tmp_path: Path) -> None:
    """A profile of one's own names a file in its folder; what is wrong with that file is one sentence."""
    profile = tmp_path / "mine.toml"
    profile.write_text('name = "mine"\ngpu = "h100-sxm"\nscaled_from = "h100-sxm"\ntables = "mine.json"\n')
    tables = json.loads((data_folder() / "profiles" / "l4.json").read_text())
    (tmp_path / "mine.json").write_text(json.dumps({**tables, "gpus": ["h100-sxm"]}))
    loaded = load_profile(str(profile)).tables
    assert loaded is not None
    assert loaded.gpus == ("h100-sxm",)
    for content, message in (
        ("{", r"mine\.json is not valid JSON"),
        ('{"gpus": 3}', r"profile\.tables\.gpus must be a list, got 3"),
        ('{"gpus": [], "gem": {}}', r"unknown field 'gem' in profile\.tables"),
    ):
        (tmp_path / "mine.json").write_text(content)
        with pytest.raises(SpecError, match=message):
            load_profile(str(profile))
    (tmp_path / "mine.json").unlink()
    with pytest.raises(SpecError, match=r"cannot read .*mine\.json"):
        load_profile(str(profile))


def test_a_scaled_profile_takes_the_shape_of_its_reference() -> None:
    """Tables are shares of peaks, so they carry over; that they were measured elsewhere they say themselves."""
    scaled, base = load_profile("gb300").tables, load_profile("b300").tables
    assert scaled == base
    assert scaled is not None
    assert scaled.gpus == ("b300",)

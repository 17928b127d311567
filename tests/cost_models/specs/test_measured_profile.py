"""The file of a measured profile: what goes in comes out, and what is wrong is told in a line."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs import measured_profile
from cost_models.specs.catalog import digest, load_profile
from cost_models.specs.data import data_folder
from cost_models.specs.errors import SpecError
from cost_models.specs.files import json_text
from tests.cost_models.specs import hand_made


def put(data: dict[str, Any], path: str, value: Any) -> None:
    """Sets a nested field, or takes it out where the value is None."""
    *parents, last = path.split(".")
    for step in parents:
        data = data[int(step) if isinstance(data, list) else step]
    if value is None:
        del data[last]
    else:
        data[last] = value


def test_a_file_comes_back_as_it_was_written(tmp_path: Path) -> None:
    """Equal profiles and equal bytes; the digest, too, is that of what was written."""
    path, measured = tmp_path / "profile.json", hand_made.measured()
    measured_profile.write(measured, path)
    again = measured_profile.read(path)
    assert again == measured
    assert measured_profile.dumps(again) == path.read_text(encoding="utf-8")
    assert digest(again.profile) == digest(measured.profile)


def test_what_is_new_to_profiles_leaves_files_and_digests_of_the_catalog_alone() -> None:
    """Fields that say nothing are not written, so that plans of before have the digest that they had."""
    fields = load_profile("h200").model_dump(mode="json")
    assert not {"slowdowns", "provenance", "communicator_bytes", "fragmentation_fraction"} & set(fields)
    assert not {"elementwise", "copies", "collectives_across"} & set(fields["tables"])
    assert "by_layout" not in fields["tables"]["gemm"]["bf16"]


@pytest.mark.parametrize("path", sorted((data_folder() / "profiles").glob("*.json")), ids=lambda path: path.stem)
def test_tables_are_written_as_those_of_the_catalog(path: Path) -> None:
    """One list of numbers or names a line."""
    text = path.read_text(encoding="utf-8")
    assert json_text(json.loads(text)) == text


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("format", "mine", "no 'format': 'meshplan profile'; `plan profile -o FILE` writes one"),
        ("schema_version", 2, "was written by schema 2 of profiles, this tool reads up to 1"),
        ("schema_version", True, "schema_version must be an integer >= 1, got True"),
        ("cluster", None, "file.cluster is required"),
        ("profile.provenance", None, "profile.provenance is required"),
        ("profile.gpu", "h200", "profile.gpu must be two-cores, the device of cluster.gpu, got h200"),
        ("profile.tables.gpus", ["h200"], "profile.tables.gpus must name two-cores, got ['h200']"),
        ("profile.gemm.fp8", hand_made.profile()["gemm"]["bf16"], "cluster.gpu.peak_flops must name fp8"),
        ("profile.link_fraction", {"nvlink": 0.5}, "profile.link_fraction must name network"),
        ("profile.provenance.date", "yesterday", "provenance.date"),
        ("profile.provenance.tables.gemm.spread", -1.0, "provenance.tables.gemm.spread must be >= 0, got -1.0"),
        (
            "profile.tables.gemm.bf16.by_layout.forward",
            {"axes": {}, "shares": [0.5]},
            "by_layout must not name forward",
        ),
        ("profile.tables.gemm.bf16.layouts", {"forward": 1.0}, "layouts must name forward, input_grad, weight_grad"),
        ("profile.tables.attention.within", {"keys": [1.0, 2.0]}, "within must name streams, keys, head_dim, got keys"),
        ("profile.tables.copies.directions.host_to_device.axes", {"size": hand_made.BYTES}, "must be bytes"),
        ("profile.tables.collectives.operations.send.shares", [0.5], "shares must be 8, one for each node"),
        ("profile.tables.elementwise.other.shares", [0.01, 0.9, 0.9, 0.9], "shares must not rise faster than bytes"),
    ],
)
def test_a_file_with_a_fault_names_it(tmp_path: Path, path: str, value: Any, message: str) -> None:
    """The file, the field, the value and what is allowed; never a traceback."""
    data = json.loads(json.dumps(hand_made.fields()))
    put(data, path, value)
    file = tmp_path / "profile.json"
    file.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(SpecError) as caught:
        measured_profile.read(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not valid JSON"),
        (b"[]", "is not a measured profile"),
        (b"\xff\xfe", "not UTF-8 text"),
        (b'{"parallelism": {}, "stages": []}', "it holds a plan document"),
        (b"[" * 100_000, "nested too deeply"),
    ],
)
def test_a_damaged_file_is_told(tmp_path: Path, content: bytes, message: str) -> None:
    """In a line that names the file."""
    path = tmp_path / "profile.json"
    path.write_bytes(content)
    with pytest.raises(SpecError, match=message):
        measured_profile.read(path)


def test_a_file_that_cannot_be_written_is_told_before_and_after(tmp_path: Path) -> None:
    """A folder that is not there, a folder in its place; what was there stays."""
    for path in (tmp_path / "none" / "profile.json", tmp_path):
        with pytest.raises(SpecError, match="cannot write"):
            measured_profile.check_writable(path)
        with pytest.raises(SpecError, match="cannot write"):
            measured_profile.write(hand_made.measured(), path)
    measured_profile.check_writable(tmp_path / "profile.json")
    assert os.listdir(tmp_path) == []

"""Finding and reading config.json files: folders, the local cache, names, and files that are broken."""

import json
import os
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.specs.catalog import load_model, load_model_with_notes
from cost_models.specs.errors import SpecError, UnknownNameError
from cost_models.specs.files import MAX_TEXT_BYTES
from cost_models.specs.hf_config import load_cached_config, load_hf_config
from cost_models.specs.hf_families import FAMILIES

CONFIG = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}


def write(folder: Path, **changes: object) -> Path:
    """Write a config.json into a new folder and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({**CONFIG, **changes}), encoding="utf-8")
    return folder


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty Hugging Face cache, the only one there is."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path / "home" / ".cache" / "huggingface" / "hub"


def test_a_file_and_its_folder_are_the_same_model(tmp_path: Path) -> None:
    """A checkpoint folder stands for its config.json and gives the model its name, unless the file does."""
    folder = write(tmp_path / "my-model")
    assert load_hf_config(folder) == load_hf_config(folder / "config.json")
    assert load_hf_config(folder).model.name == "my-model"
    assert load_hf_config(folder, name="mine").model.name == "mine"
    assert load_hf_config(write(tmp_path / "b", _name_or_path="org/name")).model.name == "org/name"
    assert load_hf_config(write(tmp_path / "c", _name_or_path="/home/someone/x y")).model.name == "c"
    renamed = tmp_path / "tiny.json"
    renamed.write_bytes((folder / "config.json").read_bytes())
    assert load_hf_config(renamed).model.name == "tiny"
    renamed.write_bytes(b"\xef\xbb\xbf" + (folder / "config.json").read_bytes())
    assert load_hf_config(renamed).model.name == "tiny"


def test_names_resolve_to_catalog_then_files_then_cache(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A catalog name wins over a folder of that name; a path is a path; an id is looked up in the cache."""
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "llama3-8b")
    write(tmp_path / "mine" / "inner")
    write(cache / "models--org--tiny" / "snapshots" / "abc")
    assert load_model("llama3-8b").layers == 32
    assert load_model("./llama3-8b").layers == 4
    assert load_model("mine/inner").name == "inner"
    assert load_model(str(tmp_path / "mine" / "inner" / "config.json")).name == "inner"
    assert load_model("org/tiny").name == "org/tiny"
    assert load_model_with_notes("llama3-8b") == (load_model("llama3-8b"), ())
    nested = write(tmp_path / "vision", model_type="gemma3", text_config={**CONFIG, "model_type": "gemma3_text"})
    assert "only its text model" in load_model_with_notes(f"{nested}/")[1][0]
    with pytest.raises(UnknownNameError, match=r"^unknown model 'org/none'; .*nothing is downloaded: give the folder"):
        load_model("org/none")


@pytest.mark.parametrize("variable", ["HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"])
def test_the_cache_is_where_its_variables_say(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    """$HF_HUB_CACHE, $HF_HOME/hub, $XDG_CACHE_HOME/huggingface/hub, else below the home folder."""
    root = tmp_path / "elsewhere"
    below = {"HF_HUB_CACHE": root, "HF_HOME": root / "hub", "XDG_CACHE_HOME": root / "huggingface" / "hub"}[variable]
    write(below / "models--gpt2x" / "snapshots" / "abc")
    assert load_cached_config("gpt2x") is None
    monkeypatch.setenv(variable, str(root))
    found = load_cached_config("gpt2x")
    assert found is not None
    assert found.model.name == "gpt2x"
    assert not cache.exists()


def test_the_main_revision_decides_between_snapshots(cache: Path) -> None:
    """refs/main names the snapshot; without it the latest one counts; a snapshot without config.json does not."""
    folder = cache / "models--org--tiny"
    old, new = (write(folder / "snapshots" / name, num_hidden_layers=n) for name, n in (("old", 2), ("new", 3)))
    (folder / "snapshots" / "weights").mkdir()
    os.utime(old / "config.json", (1, 1))
    os.utime(new / "config.json", (2, 2))

    def layers() -> int:
        found = load_cached_config("org/tiny")
        assert found is not None
        return found.model.layers

    assert layers() == 3
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("old\n")
    assert layers() == 2
    (folder / "refs" / "main").write_text("weights")
    assert layers() == 3


@pytest.mark.parametrize("hub_id", ["../../etc", "a/b/c", "", "a b", "org/", "/x", "a/..\\b"])
def test_what_is_no_id_is_not_looked_up(cache: Path, hub_id: str) -> None:
    """Nothing outside the cache is reached through a name."""
    assert load_cached_config(hub_id) is None


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is not valid JSON"),
        (b'{"model_type": "llama", "num_hid', "is not valid JSON"),
        (b"[1, 2]", "must hold a JSON object, got list"),
        (b"null", "must hold a JSON object, got NoneType"),
        (b"\x80\x04\x95\xff\x00", "not UTF-8 text"),
        (b'{"model_type": "llama", "hidden_size": Infinity}', "Infinity is no number"),
        (b'{"model_type": "llama", "hidden_size": NaN}', "NaN is no number"),
        (b'{"model_type": "llama", "hidden_size": 1e999}', "hidden_size must be a whole number"),
        (b'{"a": ' * 100_000, "not valid JSON"),
        (b"[" * 100_000, "not valid JSON"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 10_000 + b"}", "not valid JSON"),
        (b'{"model_type": ["llama"]}', "model_type is required and must be text, got ['llama']"),
    ],
)
def test_broken_files_are_refused_in_one_line(tmp_path: Path, content: bytes, message: str) -> None:
    """Empty, truncated, binary, infinite, too deep and wrong from the root: SpecError with the file's name."""
    file = tmp_path / "config.json"
    file.write_bytes(content)
    with pytest.raises(SpecError) as caught:
        load_hf_config(file)
    assert message in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """100 MB of weights under the wrong name cost nothing; so do folders without the file, and devices."""
    file = tmp_path / "config.json"
    with file.open("wb") as handle:
        handle.truncate(100_000_000)
    with pytest.raises(SpecError, match=f"100,000,000 bytes, over {MAX_TEXT_BYTES:,}"):
        load_hf_config(file)
    for path, message in ((tmp_path / "none.json", "No such file"), (Path("/dev/zero"), "not a file")):
        with pytest.raises(SpecError, match=message):
            load_hf_config(path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(SpecError, match=r"empty.config\.json: No such file"):
        load_hf_config(tmp_path / "empty")


KEYS = [*CONFIG, "num_key_value_heads", "head_dim", "layer_types", "num_experts", "text_config", "sliding_window"]
VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.lists(st.integers(), max_size=3)
)


@given(
    model_type=st.sampled_from(sorted(FAMILIES)),
    changes=st.dictionaries(st.sampled_from(KEYS[1:]), VALUES, max_size=3),
    missing=st.sets(st.sampled_from(KEYS[1:]), max_size=2),
)
def test_any_file_gives_a_model_or_a_spec_error(
    tmp_path_factory: pytest.TempPathFactory, model_type: str, changes: dict[str, object], missing: set[str]
) -> None:
    """Whatever the values are, no other exception leaves the reader."""
    entries = {key: value for key, value in {**CONFIG, **changes}.items() if key not in missing}
    file = tmp_path_factory.getbasetemp() / "any.json"
    file.write_text(json.dumps({**entries, "model_type": model_type}), encoding="utf-8")
    with suppress(SpecError):
        assert load_hf_config(file).model.layers >= 1

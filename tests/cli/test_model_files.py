"""Broken model files, through the command: exit code 2, one message with the key, at once, no traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run

HARDWARE = ["--gpus", "8", "--mem", "80GB"]
CONFIG: dict[str, Any] = {
    "model_type": "llama",
    "num_hidden_layers": 4,
    "hidden_size": 64,
    "intermediate_size": 256,
    "num_attention_heads": 4,
    "vocab_size": 1000,
    "max_position_embeddings": 512,
}
TOML = "\n".join(
    ('name = "tiny"', "layers = 4", "hidden = 64", "ffn = 256", "heads = 4", "kv_heads = 4", "head_dim = 16")
    + ("vocab = 1000", "max_seq_len = 512", "")
)


def changed(**entries: Any) -> str:
    """Return a config.json with some entries changed, None for one left out."""
    return json.dumps({key: value for key, value in {**CONFIG, **entries}.items() if value is not None})


CONFIGS: dict[str, tuple[str | bytes, str]] = {
    "truncated": (changed()[:-20], "is not valid JSON"),
    "list": ("[1, 2]", "must hold a JSON object, got list"),
    "empty": ("", "is not valid JSON"),
    "blank": (" \n", "is not valid JSON"),
    "binary": (b"\x80\x04\x95\xff\x00\x01", "not UTF-8 text"),
    "negative": (changed(num_hidden_layers=-4), "num_hidden_layers must be a whole number from 1 to 10000, got -4"),
    "zero": (changed(vocab_size=0), "vocab_size must be a whole number from 1"),
    "infinite": (changed(hidden_size=float("inf")), "Infinity is no number"),
    "infinite by its exponent": (changed().replace("64", "1e999"), "hidden_size must be a whole number"),
    "not a number": (changed(hidden_size=float("nan")), "NaN is no number"),
    "huge number": (changed(hidden_size=10**30), "hidden_size must be a whole number from 1 to 10000000"),
    "number of 5000 digits": (changed().replace("64", "9" * 5000), "is not valid JSON"),
    "text for a number": (changed(hidden_size="64"), "hidden_size must be a whole number"),
    "missing": (changed(hidden_size=None), "hidden_size is required"),
    "missing type": (changed(model_type=None), "model_type is required"),
    "unknown type": (changed(model_type="lama"), "unknown model_type 'lama'; did you mean 'llama'"),
    "contradictory spellings": (changed(n_layer=5), "num_hidden_layers 4 contradicts n_layer 5"),
    "contradictory heads": (changed(num_key_value_heads=3), "num_key_value_heads must divide num_attention_heads 4"),
    "contradictory width": (changed(num_attention_heads=5), "num_attention_heads must divide hidden_size 64"),
    "given twice": ('{"hidden_size": 32, ' + changed()[1:], "hidden_size is given twice, 32 and 64"),
    "deep": ('{"a": ' * 100_000, "is not valid JSON"),
}
TOMLS: dict[str, tuple[str | bytes, str]] = {
    "truncated": (TOML + "tie_embeddings = ", "is not valid TOML"),
    "list": ("[[1, 2]]", "is not valid TOML"),
    "empty": ("", "model.layers is required"),
    "binary": (b"\x80\x04\x95\xff\x00\x01", "not UTF-8 text"),
    "negative": (TOML.replace("layers = 4", "layers = -4"), "model.layers must be >= 1, got -4"),
    "infinite": (TOML.replace("hidden = 64", "hidden = inf"), "model.hidden must be a whole number, got inf"),
    "not a number": (TOML.replace("hidden = 64", "hidden = nan"), "model.hidden must be a whole number, got nan"),
    "huge number": (TOML.replace("hidden = 64", f"hidden = {10**30}"), "model.hidden must be"),
    "number of 5000 digits": (TOML.replace("64", "9" * 5000), "is not valid TOML"),
    "missing": (TOML.replace("vocab = 1000", ""), "model.vocab is required"),
    "misspelt": (
        TOML + "tie_embedding = true",
        "unknown field 'tie_embedding' in model; did you mean 'tie_embeddings'?",
    ),
    "contradictory heads": (
        TOML.replace("kv_heads = 4", "kv_heads = 3"),
        "model.kv_heads must divide heads (4), got 3",
    ),
    "given twice": (TOML + "layers = 5", "is not valid TOML"),
    "deep": ("x = " + "[" * 100_000, "is not valid TOML: nested too deeply"),
}
FILES = [
    *(("config.json", name, *case) for name, case in CONFIGS.items()),
    *(("mine.toml", name, *case) for name, case in TOMLS.items()),
]


@pytest.mark.parametrize(("file", "name", "content", "message"), FILES, ids=[f"{f} {n}" for f, n, *_ in FILES])
def test_a_broken_file_is_one_message(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    file: str,
    name: str,
    content: str | bytes,
    message: str,
) -> None:
    """What is broken is named with its key or its file, on stderr, or with --json as one object on stdout."""
    path = tmp_path / file
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    assert run(["--model", str(path), *HARDWARE]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("plan: ")
    assert message in err
    assert "Traceback" not in err
    assert run(["--model", str(path), *HARDWARE, "--json"]) == 2
    told = json.loads(capsys.readouterr().out)["error"]
    assert message in told["message"]
    assert (told["kind"], told["exit_code"]) == ("input", 2)


@pytest.mark.parametrize("file", ["config.json", "mine.toml", "model.safetensors"])
def test_a_hundred_megabytes_are_refused_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str) -> None:
    """Weights under any name cost no time: the size decides before anything is read."""
    path = tmp_path / file
    with path.open("wb") as handle:
        handle.truncate(100_000_000)
    assert run(["--model", str(path), *HARDWARE]) == 2
    assert f"cannot read {path}: 100,000,000 bytes" in capsys.readouterr().err


def test_a_document_of_a_hundred_megabytes_is_refused_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A plan document has a limit, too; a device has no end."""
    path = tmp_path / "plan.json"
    path.write_text('{"schema_version": 1, "stages": [' + "{}," * 33_000_000 + "{}]}")
    for file in (str(path), "/dev/zero"):
        assert run(["show", file]) == 2
        assert f"{file} is not a plan document: it has over 16,777,216 bytes" in capsys.readouterr().err


@pytest.mark.parametrize("flag", ["--gpu", "--cluster", "--recipe"])
def test_other_descriptions_have_the_same_limit(tmp_path: Path, capsys: pytest.CaptureFixture[str], flag: str) -> None:
    """GPUs, clusters and recipes are files of the same kind."""
    path = tmp_path / "mine.toml"
    with path.open("wb") as handle:
        handle.truncate(100_000_000)
    arguments = ["--model", "llama3-8b", "--gpus", "8", flag, str(path)]
    assert run(arguments if flag != "--recipe" else [*arguments, "--mem", "80GB"]) == 2
    assert "100,000,000 bytes" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("none/config.json", "cannot read none/config.json: No such file"),
        ("./none", "cannot read none: No such file"),
        ("~nobody-here/config.json", "No such file"),
        ("x" * 5000, "unknown model"),
        ("org/" + "x" * 5000, "unknown model"),
        ("./" + "x" * 5000, "File name too long"),
        ("/dev/zero", "cannot read /dev/zero: not a file"),
        ("/", "config.json: No such file"),
        (" ", "unknown model"),
    ],
    ids=["json", "path", "home", "long", "long id", "long path", "device", "root", "blank"],
)
def test_a_name_that_leads_nowhere_is_one_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], model: str, message: str
) -> None:
    """Paths that are not there, too long, devices, and names of nothing."""
    monkeypatch.chdir(tmp_path)
    assert run(["--model", model, *HARDWARE]) == 2
    err = capsys.readouterr().err
    assert err.startswith("plan: ")
    assert message in err

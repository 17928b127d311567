"""`plan profile` and `--profile FILE` through the command line, in this process."""

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cli.main import run
from cost_models.specs import measured_profile
from cost_models.specs.measured_profile import MeasuredProfile
from tests.cost_models.specs import hand_made

MODEL = (
    'name = "small"\nlayers = 4\nhidden = 256\nffn = 704\nheads = 4\nkv_heads = 2\nhead_dim = 64\nvocab = 512\n'
    "max_seq_len = 512\n"
)


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """The hand-made profile, one of a slower node, one of another device, and a small model."""
    slow, other = hand_made.fields(), hand_made.fields()
    slow["profile"]["host_launch_s"] = 6e-5
    slow["cluster"]["gpu"]["peak_flops"] = {"bf16": 40e9}
    other["cluster"]["gpu"]["name"] = other["profile"]["gpu"] = "four-cores"
    other["profile"]["tables"]["gpus"] = ["four-cores"]
    paths = {name: str(tmp_path / f"{name}.json") for name in ("usual", "slow", "other", "plan", "merged")}
    for name, fields in (("usual", hand_made.fields()), ("slow", slow), ("other", other)):
        measured_profile.write(MeasuredProfile.model_validate(fields), paths[name])
    (tmp_path / "small.toml").write_text(MODEL, encoding="utf-8")
    return paths | {"model": str(tmp_path / "small.toml")}


def told(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> str:
    """Standard output of a command line, or its standard error where it fails."""
    capsys.readouterr()
    assert run(list(words)) == code
    captured = capsys.readouterr()
    return captured.err if code else captured.out


def as_json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    """What a command line prints with --json, failures too."""
    capsys.readouterr()
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_show_prints_and_draws(files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Provenance, spread, rates and constants; a drawing that is well-formed; the whole as JSON."""
    drawing = tmp_path / "profile.svg"
    text = told(capsys, "profile", "show", files["usual"], "--svg", str(drawing))
    for part in ("two cores of a hand-made processor", "2.0 %", "9.0 %", "59.08 GFLOP/s", "host_launch_s", "20.00 us"):
        assert part in text
    labels = [element.text for element in ElementTree.fromstring(drawing.read_text()).iter() if element.text]
    assert "gemm bf16 forward, FLOP/s over rows" in labels
    assert "all reduce ranks 4" in labels
    record = as_json(capsys, "profile", "show", files["usual"])
    assert MeasuredProfile.model_validate(record["profile"]) == hand_made.measured()


def test_diff_tells_what_differs(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The operators that differ most first, constants, and other devices; nothing where nothing differs."""
    text = told(capsys, "profile", "diff", files["usual"], files["slow"])
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert "gemm bf16 forward 27 50.0 % +50.0 %" in lines
    assert "gemm bf16 forward m 64, n 64, k 64 +50.0 % 30.00 GFLOP/s 20.00 GFLOP/s" in lines
    assert "host_launch_s 20.00 us 60.00 us +200.0 %" in lines
    assert "The same in both: " in text
    assert "Nothing differs" in told(capsys, "profile", "diff", files["usual"], files["usual"])
    assert "of different devices: two-cores and four-cores" in told(
        capsys, "profile", "diff", files["usual"], files["other"]
    )
    record = as_json(capsys, "profile", "diff", files["usual"], files["slow"], "--most", "1")
    assert all(len(table["largest"]) <= 1 for table in record["tables"])
    assert record["tables"][0]["median_longer"] == pytest.approx(0.5)


def test_merge_writes_a_profile_that_plans(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """The median of two nodes, and how far they lie apart; the other device is refused and nothing written."""
    text = told(capsys, "profile", "merge", files["usual"], files["slow"], "-o", files["merged"])
    assert "20.0 %" in text  # 40 and 60 GFLOP/s round 50
    assert "two-cores-hand-made-of-2" in text
    job = ("--model", files["model"], "--gpus", "2", "--seq-len", "256", "--global-batch", "8")
    steps = [
        as_json(capsys, *job, "--profile", files[name])["predicted"]["step_time_s"]
        for name in ("usual", "merged", "slow")
    ]
    assert steps == sorted(steps)
    assert steps[0] < steps[2]
    before = Path(files["merged"]).read_bytes()
    error = told(capsys, "profile", "merge", files["usual"], files["other"], "-o", files["merged"], code=2)
    assert "profiles of unlike devices cannot be merged: device of" in error
    assert Path(files["merged"]).read_bytes() == before


def test_a_plan_and_all_that_reads_it_again(files: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    """Showing needs no file; costing anew says which one, or takes it and comes to the same step."""
    job = ("--model", files["model"], "--gpus", "2", "--seq-len", "256", "--global-batch", "8")
    text = told(capsys, *job, "--profile", files["usual"], "-o", files["plan"])
    assert "Operators are timed by the profile two-cores-hand-made" in text
    told(capsys, "show", files["plan"])
    for verb in (("explain",), ("simulate",), ("check",)):
        error = told(capsys, *verb, files["plan"], code=2)
        assert "give its file with --profile FILE" in error
        told(capsys, *verb, files["plan"], "--profile", files["usual"])
        assert "was measured on four-cores" in told(capsys, *verb, files["plan"], "--profile", files["other"], code=2)
    explained = as_json(capsys, "explain", files["plan"], "--profile", files["usual"])
    assert explained["notes"] == []
    assert explained["operators"]["layer"][0]["measured_share"] == 1.0
    why = as_json(capsys, "explain", files["plan"], "--profile", files["usual"], "--why-not", "pp=2")
    assert why["kind"] in ("slower", "tie")
    pairs = ("check", "tp=2,pp=1", *job, "--profile", files["usual"])
    assert as_json(capsys, *pairs)["fine"] is True


def test_runs_are_evaluated_by_a_profile(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A run on a device that no catalog has is predicted with its profile, and not without."""
    runs, out = tmp_path / "runs.csv", str(tmp_path / "predicted.csv")
    runs.write_text(
        "model,n_layers,hidden,heads,vocab,gpu,n_gpus,seq_len,global_batch_seqs,tp,pp,micro_batch,recompute\n"
        "small,4,256,4,512,two-cores,2,256,8,1,1,4,none\n",
        encoding="utf-8",
    )
    assert "1 unsupported" in told(capsys, "evaluate", str(runs), "--out", out)
    assert "1 ok" in told(capsys, "evaluate", str(runs), "--out", out, "--profile", files["usual"])


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", "is not valid JSON"),
        ('{"format": "meshplan profile", "schema_version": 7}', "written by schema 7 of profiles"),
        ('{"parallelism": {}, "stages": []}', "it holds a plan document"),
        ('{"format": "meshplan profile", "schema_version": 1}', "file.cluster is required"),
    ],
)
def test_a_bad_file_is_told_with_exit_code_2(
    tmp_path: Path, content: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By every verb that reads one, as text and as JSON."""
    path = tmp_path / "bad.json"
    path.write_text(content, encoding="utf-8")
    for words in (
        ("profile", "show", str(path)),
        ("profile", "diff", str(path), str(path)),
        ("profile", "merge", str(path), str(path), "-o", str(tmp_path / "out.json")),
        ("--model", "llama3-8b", "--gpus", "2", "--profile", str(path)),
    ):
        assert message in told(capsys, *words, code=2)
        assert message in as_json(capsys, *words, code=2)["error"]["message"]
    assert message in told(capsys, "profile", "show", str(path), code=2)


def test_mixed_clusters_take_no_profile(
    files: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A profile is of one kind of device; a cluster of several kinds is refused."""
    path = tmp_path / "mixed.toml"
    path.write_text(
        'name = "mixed"\n[[groups]]\ncluster = "dgx-h100"\ngpus = 8\n[[groups]]\ncluster = "dgx-a100"\ngpus = 8\n',
        encoding="utf-8",
    )
    words = ("--model", "llama3-8b", "--cluster", str(path), "--profile", files["usual"])
    assert "--profile" in told(capsys, *words, code=2)

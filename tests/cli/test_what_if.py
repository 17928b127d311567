"""`plan what-if`, the run's figures beside a plan, and questions about clusters, through the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from planner.document import DocumentError, dumps
from planner.request import build_request
from planner.search import plan
from planner.study.files import loads_study

JOB = ["--model", "llama3.2-1b", "--gpu", "h100-sxm", "--seq-len", "2k", "--global-batch", "16"]
SWEEP = ["what-if", *JOB, "--sweep", "gpus=1,2", "--jobs", "1"]


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a command line."""
    capsys.readouterr()
    code = run(list(arguments))
    return code, *capsys.readouterr()


def test_a_study_as_table_json_csv_and_documents(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """All from one command, and the plans are byte for byte what `plan` writes."""
    out, csv, folder = tmp_path / "study.json", tmp_path / "study.csv", tmp_path / "plans"
    files = ["-o", str(out), "--csv", str(csv), "--documents", str(folder), "--keep", str(tmp_path / "kept")]
    code, text, errors = ran(capsys, *SWEEP, *files, "--price", "2.5", "--tokens", "100B")
    assert (code, errors) == (0, "")
    assert text.startswith("2 scenarios of ")
    assert "2 planned; * on the front of time against cost of a token." in text
    assert "failures_per_gpu_day" in text
    study = loads_study(out.read_text(encoding="utf-8"))
    assert [each.inputs["gpus"] for each in study.scenarios] == ["1", "2"]
    assert len(csv.read_text(encoding="utf-8").splitlines()) == 3
    keywords: dict[str, Any] = {"gpu": "h100-sxm", "seq_len": "2k", "global_batch": 16}
    for number, gpus in enumerate((1, 2)):
        alone = tmp_path / "alone.json"
        assert ran(capsys, *JOB, "--gpus", str(gpus), "-o", str(alone), "--jobs", "1")[0] == 0
        assert (folder / f"{number}.json").read_bytes() == alone.read_bytes()
        assert alone.read_text(encoding="utf-8") == dumps(plan(build_request("llama3.2-1b", gpus, **keywords)))
    kept = ["--keep", str(tmp_path / "kept")]
    code, text, _ = ran(capsys, *SWEEP, "--json", *kept, "--price", "2.5", "--tokens", "100B")
    assert code == 0
    assert text == out.read_text(encoding="utf-8")


def test_a_study_of_which_nothing_can_be_asked_is_bad_input(capsys: pytest.CaptureFixture[str]) -> None:
    """Told scenario by scenario; where some can be asked and nothing fits, that is the answer."""
    job = ["what-if", "--model", "llama3-8b", "--gpu", "h100-sxm", "--gpus", "1", "--seq-len", "4k", "--keep", "off"]
    code, told, _ = ran(capsys, *job, "--sweep", "global-batch=0,-1")
    assert (code, told.count("must be a whole number from 1")) == (2, 2)
    assert ran(capsys, *job, "--sweep", "global-batch=0,1", "--sweep", "mem=1GB")[0] == 1


def test_a_study_is_shown_again(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """As it was told, as JSON and as its page; a damaged one, and a profile for it, are refused."""
    out, pages = tmp_path / "study.json", [tmp_path / "first.html", tmp_path / "again.html"]
    code, told, _ = ran(capsys, *SWEEP, "-o", str(out), "--report", str(pages[0]), "--keep", "off")
    assert code == 0
    assert ran(capsys, "show", str(out), "--report", str(pages[1])) == (0, told, "")
    assert pages[1].read_bytes() == pages[0].read_bytes()
    assert ran(capsys, "show", str(out), "--json")[1] == out.read_text(encoding="utf-8")
    code, _, errors = ran(capsys, "show", str(out), "--profile", "p.json")
    assert code == 2
    assert "--profile times the timeline of one plan, got p.json for a study" in errors
    out.write_text(out.read_text(encoding="utf-8").replace('"number": 0', '"number": -1'), encoding="utf-8")
    code, _, errors = ran(capsys, "show", str(out))
    assert code == 2
    assert f"{out} is not a valid study: document.scenarios[0].number must be >= 0, got -1" in errors


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--sweep", "gpus="], "--sweep gpus must have values"),
        (["--sweep", "seq-len=8k..2k:x2"], "must have ranges that ascend"),
        (["--sweep", "gpuz=1"], "did you mean 'gpu'?"),
        ([], "--sweep is missing"),
        (["--sweep", "gpus=1..1000:+1", "--sweep", "top-k=1..1000:+1"], "makes 1,000,000 scenarios"),
        (["--sweep", "gpus=1", "--backend", "slurm"], "--backend must be one of loky, dask, ray, got 'slurm'"),
        (["--sweep", "gpus=1", "--csv", "/nowhere/study.csv"], "cannot write /nowhere/study.csv: there is no folder"),
        (["--sweep", "gpus=1", "-o", "."], "cannot write .: it is a directory"),
        (["--sweep", "gpus=1", "--documents", "/dev/null/plans"], "cannot write /dev/null/plans: not a directory"),
        (["--sweep", "gpus=1", "--keep", "/dev/null/kept"], "cannot keep scenarios in /dev/null/kept"),
        (["--sweep", "gpus=1", "--price", "free"], "--price must be dollars"),
        (["--sweep", "gpus=1", "--assume", "pue=0.5"], "assume.pue must be >= 1, got 0.5"),
    ],
)
def test_bad_input_is_told_before_anything_is_planned(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2 and one message, also as JSON; no search begins."""
    monkeypatch.setattr("planner.study.run.answered", lambda request: pytest.fail("a search began"))
    code, text, errors = ran(capsys, "what-if", *JOB, *arguments)
    assert (code, text) == (2, "")
    assert told in errors
    assert "Traceback" not in errors
    code, text, _ = ran(capsys, "what-if", *JOB, *arguments, "--json")
    assert code == 2
    assert told in json.loads(text)["error"]["message"]


def test_a_file_that_fails_at_the_end_loses_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The message says where the finished scenarios are, and the same command goes on from there."""

    def full(study: object, path: str) -> None:
        message = f"cannot write {path}: no space left on device"
        raise DocumentError(message)

    monkeypatch.setattr("cli.what_if.write_csv", full)
    keep = ["--keep", str(tmp_path / "kept")]
    code, _, errors = ran(capsys, *SWEEP, *keep, "--csv", str(tmp_path / "study.csv"))
    assert code == 2
    assert "no space left on device; all finished scenarios are kept in" in errors
    assert len(list((tmp_path / "kept").glob("*.json"))) == 2
    monkeypatch.undo()
    monkeypatch.setattr("planner.study.run.answered", lambda request: pytest.fail("a search began"))
    assert ran(capsys, *SWEEP, *keep, "--csv", str(tmp_path / "study.csv"))[0] == 0


def test_an_interrupt_tells_what_is_open(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Exit code 130, the table of what is finished, and how to go on."""

    def stop(request: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("planner.study.run.answered", stop)
    code, text, errors = ran(capsys, *SWEEP, "--keep", str(tmp_path))
    assert code == 130
    assert "2 open" in text
    assert "interrupted, 2 scenarios are open; the same command goes on from there" in errors


def test_where_nothing_fits_the_reasons_are_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 1; scenarios with one reason share a line."""
    job = ["what-if", *JOB, "--sweep", "mem=1GB,1.1GB", "--gpus", "1", "--keep", "off", "--schedule", "1f1b"]
    code, text, _ = ran(capsys, *job, "--set", "cluster.host_memory_bytes=1000000")
    assert code == 1
    assert "2 infeasible" in text
    assert "mem 1GB" in text


def test_a_plan_tells_what_its_run_comes_to(capsys: pytest.CaptureFixture[str]) -> None:
    """Below the report, or as JSON beside the plan; without such a flag there is nothing of it."""
    money = ["--tokens", "100B", "--days", "30", "--price", "2.5", "--assume", "pue=1.3"]
    code, text, _ = ran(capsys, *JOB, "--gpus", "2", *money)
    assert code == 0
    assert "The run" in text
    assert "pue = 1.3: power of the site over the power of its nodes." in text
    code, text, _ = ran(capsys, *JOB, "--gpus", "2", *money, "--json")
    data = json.loads(text)
    assert code == 0
    assert set(data) == {"plan", "economics", "economics_assumptions"}
    found, step_s = data["economics"], data["plan"]["predicted"]["step_time_s"]
    assert found["cost_usd"] == pytest.approx(2.5 * found["gpu_hours"])
    assert found["tokens_per_day"] == pytest.approx(16 * 2048 / step_s * 86_400 * found["goodput"])
    assert "The run" not in ran(capsys, *JOB, "--gpus", "2")[1]


def test_questions_are_answered_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    """The first line of the text, and `line` of the JSON."""
    code, text, _ = ran(capsys, *JOB, "--gpus", "2", "--one-more-node", "--jobs", "1")
    assert code == 0
    assert text.startswith("1 more node: 16 GPUs: +")
    money = ["--tokens", "10B", "--days", "3", "--price", "h100=2.5", "--json", "--jobs", "1"]
    code, text, _ = ran(capsys, "--model", "llama3.2-1b", "--global-batch", "64", "--seq-len", "2k", *money)
    data = json.loads(text)
    assert (code, data["question"]) == (0, "cheapest")
    assert data["line"].startswith("8 x h100-sxm (1 node): $")
    assert data["answer"]["economics"]["meets_deadline"] is True


def test_questions_do_not_mix(capsys: pytest.CaptureFixture[str]) -> None:
    """One at a time; what has no effect is refused."""
    code, _, errors = ran(capsys, *JOB, "--gpus", "2", "--one-more-node", "--min-gpus")
    assert code == 2
    assert "--min-gpus and --one-more-node are questions of their own: ask one at a time" in errors

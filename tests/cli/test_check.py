"""`plan check` and the inverse questions through the command line, in this process."""

import io
import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from planner.document import read

JOB = ["--model", "llama3-8b", "--gpus", "8", "--mem", "80GB", "--seq-len", "4k", "--global-batch", "64"]
GOLDEN = "tests/golden/llama3-8b_8.json"
TINY = ["--set", "model.layers=4", "--gap", "0.05"]


def answer(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """The exit code, and what was printed as JSON."""
    code = run([*arguments, "--json"])
    out, err = capsys.readouterr()
    assert err == ""
    return code, json.loads(out)


def test_a_configuration_without_fault(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Exit 0, its step and its memory; its document can be written and shown."""
    file = tmp_path / "mine.json"
    assert run(["check", "tp=2,recompute=norm", *JOB, "-o", str(file)]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("llama3-8b on 8 x h100-sxm: no rule broken\n")
    assert "TP 2 + SP" in out
    assert ": fits" in out
    assert err == ""
    assert read(file).parallelism.tp == 2
    assert run(["show", str(file)]) == 0


def test_every_broken_rule_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1, each with its id and what is near; such a run is not costed, and has no document."""
    code, found = answer(capsys, "check", "tp=3,dp=2,micro_batch_size=5", *JOB)
    assert code == 1
    assert not found["fine"]
    messages = {each["id"]: each["message"] for each in found["faults"]}
    assert messages["tp-divides-heads"] == "tp must divide heads (32), got 3; nearest: 2 or 4"
    assert "nearest: 8 or 16, or global_batch 60 or 70" in messages["batch-divides"]
    assert found["predicted"] is found["plan"] is None
    assert run(["check", "tp=3", *JOB, "-o", "never.json"]) == 2
    assert "has no document" in capsys.readouterr().err


def test_memory_that_lacks_is_told_with_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1; the changes have flags or a configuration, in the table and as JSON."""
    code, found = answer(capsys, "check", "tp=2,micro_batch_size=8", *JOB)
    assert code == 1
    assert "too much" in found["shortages"][0]
    assert len(found["changes"]) >= 3
    assert all(each["flags"] or each["setting"] for each in found["changes"])
    assert run(["check", "tp=2,micro_batch_size=8", *JOB]) == 1
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert "What would help" in out
    assert f"1 {found['changes'][0]['setting']}" in out


def test_rules_of_a_target(capsys: pytest.CaptureFixture[str]) -> None:
    """A layout that is legal and that the launcher cannot express is a fault, costed all the same."""
    code, found = answer(capsys, "check", "pp=2,zero_stage=3", *JOB, "--target", "deepspeed")
    assert code == 1
    assert "deepspeed-pipelines-keep-gradients-whole" in [each["id"] for each in found["faults"]]
    assert found["predicted"]["step_time_s"] > 0


def test_a_plan_document_is_checked(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file or standard input; for a launcher that cannot express it, exit 1."""
    assert run(["check", GOLDEN]) == 0
    file = capsys.readouterr().out
    with open(GOLDEN, "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(stream.read())))
    assert run(["check", "-"]) == 0
    assert capsys.readouterr().out == file
    code, found = answer(capsys, "check", GOLDEN, "--target", "accelerate")
    assert code == 1
    assert "accelerate-has-no-pipelines" in [each["id"] for each in found["faults"]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["check", "tp=2"], "the model is missing"),
        (["check", "nowhere.json"], "nowhere.json"),
        (["check", "tp", *JOB], "there is no plan document 'tp', and pairs are field=value such as tp=8,pp=2"),
        (["check", "", *JOB], "there is no plan document ''"),
        ([*JOB, "--largest-model", ""], "must be how names of the catalog begin, such as llama3, got ''"),
        ([*JOB, "--min-gpus", "--search", "offload"], "--search offload cannot be given with --min-gpus"),
        ([*JOB, "--min-gpus", "-o", "/no/where.json"], "cannot write /no/where.json"),
        ([*JOB, "--max-seq-len", "--stats", "/no/where.json"], "cannot write /no/where.json"),
        ([*JOB, "--max-global-batch", "--why-not", "tpp=2"], "did you mean 'tp'"),
        (["check", GOLDEN, "--gpus", "8"], "--gpus cannot be given with a plan document"),
        (["check", GOLDEN, "--target", "megatrn"], "--target must be one of"),
        (["check", "tpp=2", *JOB], "did you mean 'tp'"),
        ([*JOB, "--min-gpus", "--max-seq-len"], "--min-gpus and --max-seq-len are questions of their own"),
        (["--gpus", "8", "--mem", "80GB", "--max-seq-len"], "the model is missing"),
        (["--gpus", "8", "--mem", "80GB", "--largest-model", "nothing"], "must be how names of the catalog begin"),
    ],
)
def test_bad_input_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2 with one message; as JSON, too."""
    assert run(arguments) == 2
    assert message in capsys.readouterr().err
    assert run([*arguments, "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]


def test_fewest_gpus_are_found_without_a_count(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The frontier, the answer, its plan; -o writes it."""
    file = tmp_path / "least.json"
    arguments = ["--model", "llama3-8b", "--mem", "80GB", "--seq-len", "1k", "--global-batch", "4", *TINY, "--min-gpus"]
    code, found = answer(capsys, *arguments, "-o", str(file))
    assert code == 0
    assert found["capacity"]["answer"] == found["plan"]["cluster"]["gpus"] == read(file).cluster.gpus == 1
    assert found["capacity"]["frontier"][0]["fits"]


@pytest.mark.slow
def test_the_plan_of_a_question_is_told_as_any_plan(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """--why-not, --advise and --stats are of the plan of the answer."""
    stats = tmp_path / "stats.json"
    question = ["--model", "gpt2", "--mem", "80GB", "--seq-len", "1k", "--global-batch", "4", "--min-gpus"]
    asked = [*question, *TINY, "--why-not", "tp=2", "--advise", "--stats", str(stats)]
    code, found = answer(capsys, *asked)
    assert code == 0
    assert list(found) == ["capacity", "plan", "changes", "relief", "why_not"]
    assert found["why_not"]["rules"][0]["id"] == "degrees-multiply"
    assert found["plan"]["launchers"]["accelerate"]["best_step_time_s"] > 0
    assert json.loads(stats.read_text(encoding="utf-8"))["layouts"] > 0
    assert run(asked) == 0
    out = capsys.readouterr().out
    headings = ["fewest GPUs: 1", "certificate", "Launchers", "why not tp=2"]
    places = [out.index(heading) for heading in headings]
    assert places == sorted(places)


def test_clusters_of_several_kinds_are_for_plans_alone(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """A question or a check names one of the kinds."""
    file = tmp_path / "two.toml"
    file.write_text('name = "two"\n[[groups]]\ngpu = "h100"\ngpus = 4\n[[groups]]\ncluster = "dgx-a100"\ngpus = 8\n')
    job = ["--model", "llama3-8b", "--cluster", str(file)]
    for arguments in ([*job, "--min-gpus"], ["check", "tp=2", *job]):
        assert run(arguments) == 2
        assert "name one kind here (h100, dgx-a100) and --gpus" in capsys.readouterr().err


def test_a_question_without_answer_exits_1(capsys: pytest.CaptureFixture[str]) -> None:
    """70B on at most two GPUs: why not is in the table."""
    assert run(["--model", "llama3-70b", "--gpus", "2", "--mem", "80GB", "--min-gpus"]) == 1
    out = capsys.readouterr().out
    assert "fewest GPUs: nothing fits" in out
    assert "states alone take" in out


def test_the_largest_model_needs_no_model(capsys: pytest.CaptureFixture[str]) -> None:
    """The family stands for it; the report of its plan follows."""
    assert (
        run(["--gpus", "1", "--mem", "80GB", "--seq-len", "1k", "--global-batch", "1", "--largest-model", "gpt2"]) == 0
    )
    out = capsys.readouterr().out
    assert "largest model: gpt2" in out
    assert "certificate" in out


def test_nothing_fits_and_what_would_help(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 1 with the reason, the questions that may help, and priced changes; as JSON in the error."""
    job = [*JOB, "--set", "model.layers=4", "--set", "cluster.host_memory_bytes=1", "--gap", "0.05"]
    job[job.index("80GB")] = "7GB"
    code, found = answer(capsys, *job)
    assert code == 1
    assert found["error"]["kind"] == "infeasible"
    assert any("--min-gpus" in message for message in found["error"]["messages"])
    assert found["error"]["changes"]
    assert run(job) == 1
    err = capsys.readouterr().err
    assert "nothing fits" in err
    assert "What would help" in err

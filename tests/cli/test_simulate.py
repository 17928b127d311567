"""`plan simulate` through the command line, in this process."""

import json
from pathlib import Path
from xml.etree import ElementTree

import pytest

from cli.main import run
from planner.document import dumps, read
from tests.golden.jobs import JOBS

PLAN = str(next(job.path for job in JOBS if job.name == "llama3-8b_8"))


def test_a_plan_is_replayed_and_told(capsys: pytest.CaptureFixture[str]) -> None:
    """The step, ranks, the critical path and what a slow rank costs, on stdout."""
    assert run(["simulate", PLAN, "--perturb", "stage=1:1.2"]) == 0
    told = capsys.readouterr().out
    for text in ("llama3-8b", "step ", "Ranks", "Critical path", "rank 1 x 1.2"):
        assert text in told


def test_everything_is_written_and_a_trace_of_ours_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Drawing, page and trace; the trace given back deviates nowhere. Only the record is on stdout."""
    files = {kind: tmp_path / f"out.{kind}" for kind in ("svg", "html", "trace")}
    flags = [word for kind, path in files.items() for word in (f"--{kind}", str(path))]
    assert run(["simulate", PLAN, *flags]) == 0
    ElementTree.fromstring(files["svg"].read_text())
    assert files["html"].read_text().startswith("<!doctype html>")
    capsys.readouterr()
    assert run(["simulate", PLAN, "--compare", str(files["trace"]), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["comparison"]["first_deviation"] is None
    assert record["step_time_s"] > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out.html", "out.svg", "out.trace"]


def test_a_document_of_another_profile_is_replayed_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both step times are told on stderr."""
    document = read(PLAN)
    longer_s = 2 * document.predicted.step_time_s
    breakdown = {cause: 2 * time_s for cause, time_s in document.predicted.time_breakdown_s.items()}
    predicted = document.predicted.replaced(
        step_time_s=longer_s,
        step_time_low_s=longer_s,
        step_time_high_s=longer_s,
        time_breakdown_s=breakdown,
    )
    certificate = document.certificate.replaced(objective_s=longer_s, bound_s=longer_s, gap=0.0)
    path = tmp_path / "plan.json"
    path.write_text(dumps(document.model_copy(update={"predicted": predicted, "certificate": certificate})))
    assert run(["simulate", str(path)]) == 0
    told = capsys.readouterr()
    assert f"the document predicts a step of {longer_s:.9g} s" in told.err
    assert "Ranks" in told.out


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["no-such-plan.json"], "cannot read no-such-plan.json"),
        ([__file__], "is not JSON"),
        ([PLAN, "--perturb", "stage=2:1.2"], "must be in 0..1, got 2"),
        ([PLAN, "--perturb", "stage=0:0"], "factor of --perturb must be a number > 0"),
        ([PLAN, "--perturb", "rank 3"], "must be stage=RANK:FACTOR"),
        ([PLAN, "--compare", "no-such-trace.json"], "cannot read no-such-trace.json"),
        ([PLAN, "--compare", __file__], "is not a trace"),
        ([PLAN, "--compare", PLAN], "is not a trace"),
        ([PLAN, "--svg", "/no/such/folder/a.svg"], "cannot write"),
        ([PLAN, "--html", "/no/such/folder/a.html"], "cannot write"),
        ([PLAN, "--trace", "/no/such/folder/a.json"], "cannot write"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """On stderr as text; with --json on stdout as an object."""
    assert run(["simulate", *flags]) == 2
    told = capsys.readouterr()
    assert told.out == ""
    assert message in told.err
    assert told.err.count("\n") == 1
    assert run(["simulate", *flags, "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]

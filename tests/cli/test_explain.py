"""`plan explain` and --why-not through the command line, in this process."""

import json
from pathlib import Path

import pytest

from cli.main import run
from planner.document import read

PLAN = str(Path(__file__).resolve().parents[1] / "golden" / "llama3-8b_8.json")
SMALL = ["--model", "llama3.2-1b", "--gpus", "2", "--mem", "80GB", "--global-batch", "8", "--seq-len", "2k"]


def test_a_stage_is_explained(capsys: pytest.CaptureFixture[str]) -> None:
    """Formulas of the stage asked for alone, nothing on stderr."""
    assert run(["explain", PLAN, "--stage", "1"]) == 0
    out, err = capsys.readouterr()
    assert "Stage 1: " in out
    assert "Stage 0: " not in out
    assert "2 B * (head_parameters + layers * layer_parameters)" in out
    assert err == ""


def test_an_explanation_is_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    """--json gives every stage, with causes that add up to its bytes."""
    assert run(["explain", PLAN, "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert [stage["rank"] for stage in data["stages"]] == [0, 1]
    assert [stage["layers"] for stage in data["stages"]] == [stage.layers for stage in read(PLAN).stages]
    for stage in data["stages"]:
        causes = sum(cause["value"] for cause in stage["memory"]["causes"])
        assert causes == pytest.approx(stage["memory"]["device_bytes"], rel=1e-9)


def test_why_not_is_answered(capsys: pytest.CaptureFixture[str]) -> None:
    """A rule that forbids is an answer: the exit code is 0, as text and as JSON."""
    assert run(["explain", PLAN, "--why-not", "tp=3"]) == 0
    assert "why not tp=3: a rule forbids it" in capsys.readouterr().out
    assert run(["explain", PLAN, "--why-not", "tp=3", "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["kind"], answer["rules"][0]["id"]) == ("forbidden", "tp-divides-heads")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--why-not", "tpp=8"], "did you mean 'tp'"),
        (["--why-not", "tp=-1"], "must be >= 1, got -1"),
        (["--stage", "2"], "0 to 1, got 2"),
    ],
)
def test_bad_input_is_told(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and what is allowed."""
    assert run(["explain", PLAN, *arguments]) == 2
    assert message in capsys.readouterr().err


def test_planning_answers_too(capsys: pytest.CaptureFixture[str]) -> None:
    """`plan --model ... --why-not tp=2` plans, then answers; as JSON in one object. A bad pair fails before."""
    assert run([*SMALL, "--why-not", "tp=2"]) == 0
    out = capsys.readouterr().out
    assert out.index("llama3.2-1b on 2 x h100-sxm") < out.index("why not tp=2: ")
    assert run([*SMALL, "--why-not", "tp=2", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["why_not"]["other"]["parallelism"]["tp"] == 2
    assert data["plan"]["parallelism"]["tp"] == 1
    assert run([*SMALL, "--why-not", "tp"]) == 2
    assert "field=value" in capsys.readouterr().err

"""`plan rules`, --target and --advise through the command line, in this process."""

import json

import pytest

from cli.main import run
from planner.errors import Interrupted
from planner.rules import RULES

SMALL = ["--model", "llama3.2-1b", "--gpus", "2", "--mem", "80GB", "--global-batch", "8", "--seq-len", "2k"]


def test_rules_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """All of them, or those of one launcher."""
    assert run(["rules"]) == 0
    every = capsys.readouterr().out
    assert all(rule.id in every for rule in RULES)
    assert run(["rules", "--launcher", "nanotron"]) == 0
    some = capsys.readouterr().out
    assert all((rule.id in some) == (rule.launcher == "nanotron") for rule in RULES)


@pytest.mark.parametrize("rule", ["tp-divides-heads", "deepspeed-pipelines-keep-gradients-whole"])
def test_a_rule_is_explained(capsys: pytest.CaptureFixture[str], rule: str) -> None:
    """What, why, an example and what is said to it."""
    assert run(["rules", rule]) == 0
    out = capsys.readouterr().out
    assert out.startswith(rule)
    for heading in ("holds for", "field", "what", "why", "example"):
        assert f"  {heading}" in out
    assert ", got " in out


def test_rules_are_data_too(capsys: pytest.CaptureFixture[str]) -> None:
    """--json has every field of the rules and what breaks them."""
    assert run(["rules", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["rules"]
    assert [each["id"] for each in data] == [rule.id for rule in RULES]
    assert all(each["what"] and each["why"] and each["example"]["message"] for each in data)
    assert run(["rules", "tp-divides-heads", "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["rules"]
    assert only["example"] == {
        "values": {"tp": 3, "heads": 64},
        "message": "tp must divide heads (64), got 3; nearest: 2 or 4",
    }


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["rules", "tp-divides-head"], "did you mean 'tp-divides-heads'"),
        (["rules", "tp-divides-heads", "--launcher", "nanotron"], "there is no rule of nanotron 'tp-divides-heads'"),
        (["rules", "--launcher", "megatro"], "--launcher must be one of any, megatron, bridge"),
        ([*SMALL, "--target", "megatro"], "--target must be one of any, megatron, bridge"),
    ],
)
def test_what_there_is_not_is_told(capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    """Exit code 2, the name that was meant, JSON on request."""
    assert run(arguments) == 2
    assert message in capsys.readouterr().err
    assert run([*arguments, "--json"]) == 2
    assert message in json.loads(capsys.readouterr().out)["error"]["message"]


def test_a_plan_for_a_target_is_one_that_it_can_express(capsys: pytest.CaptureFixture[str]) -> None:
    """The target's recipe, its answer in the document, and a sentence that says what was searched."""
    assert run([*SMALL, "--target", "accelerate", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["recipe"]["name"] == "trainer"
    assert document["launchers"]["accelerate"]["expressible"]
    assert "Only plans that accelerate can express are searched." in document["assumptions"]


def test_the_report_ends_with_the_launchers(capsys: pytest.CaptureFixture[str]) -> None:
    """Who can express the plan, who cannot and why; with --advise what their own best takes."""
    assert run(SMALL) == 0
    plain = capsys.readouterr().out
    assert run([*SMALL, "--advise"]) == 0
    advised = capsys.readouterr().out
    told, more = (text[text.index("\nLaunchers\n") :] for text in (plain, advised))
    assert "runtime: yes" in told.replace("\n    ", " ")
    assert "its best plan takes" not in told
    assert "its best plan takes" in more
    assert "what that costs: --advise" in told
    assert "--advise" not in more


def test_advice_that_is_interrupted_keeps_the_plan(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plan is printed as it was, the exit code is 130."""

    def stopped(*_: object) -> None:
        raise Interrupted

    monkeypatch.setattr("planner.advice.advised", stopped)
    assert run([*SMALL, "--advise", "--json"]) == 130
    out, err = capsys.readouterr()
    assert json.loads(out)["launchers"]["runtime"]["expressible"]
    assert "the best plans of other launchers and changes are left out" in err

"""How a search that is cut short ends, through the command: what is printed, and the exit code."""

import json
import signal
import subprocess
import sys
import time

import pytest

from cli.main import run

SMALL = ["--model", "llama3.2-1b", "--gpus", "4", "--mem", "80GB", "--global-batch", "12", "--seq-len", "2k", "--json"]
LARGE = ["--model", "llama3-70b", "--gpus", "1024", "--mem", "80GB", "--gap", "0", "--json"]


@pytest.mark.parametrize("gap", [0.0, 0.2])
def test_a_gap_is_met(gap: float, capsys: pytest.CaptureFixture[str]) -> None:
    """The certificate closes within it, and says so."""
    assert run([*SMALL, "--gap", str(gap)]) == 0
    certificate = json.loads(capsys.readouterr().out)["certificate"]
    assert certificate["status"] == "OPTIMAL"
    assert certificate["gap"] <= gap + 1e-7
    assert certificate["bound_s"] <= certificate["objective_s"]


def test_a_wider_gap_looks_at_no_more(capsys: pytest.CaptureFixture[str]) -> None:
    """And its plan is within it of the one without a gap."""
    found = []
    for gap in ("0", "0.2"):
        assert run([*SMALL, "--gap", gap]) == 0
        found.append(json.loads(capsys.readouterr().out)["certificate"])
    exact, wide = found
    assert wide["rows"] <= exact["rows"]
    assert wide["objective_s"] * (1 - 0.2) <= exact["objective_s"] * (1 + 1e-7)


def test_a_time_limit_prints_the_best_so_far_and_exits_with_4(capsys: pytest.CaptureFixture[str]) -> None:
    """The plan is real, its bound is true as far as it was proven, and stderr says why it ended."""
    assert run([*LARGE, "--time-limit", "0.01"]) == 4
    out, err = capsys.readouterr()
    document = json.loads(out)
    assert document["certificate"]["status"] == "FEASIBLE"
    assert document["certificate"]["gap"] > 0
    assert document["predicted"]["verdict"] == "yes"
    assert err == "plan: the time limit of 0.01 s was reached; this is the best plan so far\n"


def heeds_ctrl_c() -> None:
    """In a child: Ctrl-C is as in a terminal, though what a shell starts in the background is to ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
def test_ctrl_c_ends_with_130() -> None:
    """Whenever it strikes: standard output is JSON, of the best so far or of the error; there is no traceback."""
    command = [sys.executable, "-m", "cli.main", *LARGE, "--search", "precision,optimizer,loss,groups"]
    for wait_s in (4.0, 12.0):
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, preexec_fn=heeds_ctrl_c
        )
        time.sleep(wait_s)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
        assert process.returncode == 130
        assert "Traceback" not in err
        answer = json.loads(out)
        if "error" in answer:
            assert answer["error"]["exit_code"] == 130
        else:
            assert answer["predicted"]["verdict"] == "yes"
            assert "interrupted" in err

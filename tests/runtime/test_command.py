"""`plan run` and `plan verify` through the command line."""

import csv
import json
import math
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import runtime.verify
import runtime.world
from cli.main import run
from planner.document import Offload, write
from planner.document.job import Job
from runtime.agreement import Agreement
from runtime.verify import Verification
from tests.runtime.documents import document_of, written
from tests.runtime.jobs import MEGATRON, small_job, small_model

TEXT = str(Path(__file__).resolve().parents[2] / "LICENSE")
MODEL = small_model(3, vocab=256)
JOB = small_job(MODEL, pp=2, layers=(2, 1), micro_batches=2, recipe=MEGATRON)
STEP = {
    *("step", "loss", "gradient_norm", "step_time_s", "tokens_per_s", "peak_memory_bytes", "device"),
    *("stage_step_time_s", "stage_peak_memory_bytes"),
}


LAUNCHER_S = 400.0  # ranks of a launcher import torch anew, one on each core and on a busy machine
LAUNCHER = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m", "cli.main"]


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing says that this process is a rank."""
    for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"):
        monkeypatch.delenv(name, raising=False)


def told(arguments: list[str], code: int, capsys: pytest.CaptureFixture[str]) -> Any:
    """What a command prints as JSON; it must leave with a code."""
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_a_run_tells_its_steps_and_reports(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout, as lines of JSON, and as a table that evaluate reads; the same steps each time."""
    plan, log, report = written(JOB, tmp_path), tmp_path / "log.jsonl", tmp_path / "report.csv"
    log.write_text("of an earlier run\n")
    common = ["run", plan, "--local-ranks", "2", "--steps", "3", "--data", TEXT]
    steps = told([*common, "--log", str(log), "--report", str(report)], 0, capsys)
    assert (steps["model"], steps["ranks"], len(steps["steps"])) == ("small", 2, 3)
    assert all(set(step) == STEP for step in steps["steps"])
    assert [json.loads(line) for line in log.read_text().splitlines()] == steps["steps"]
    with report.open(newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == ["stage-0", "stage-1"]
    evaluated = told(["evaluate", str(report), "--out", str(tmp_path / "out.csv")], 0, capsys)
    assert (evaluated["rows"], evaluated["ok"]) == (2, 2)
    assert run(common) == 0
    lines = capsys.readouterr().out.splitlines()
    losses = [f"step {step['step']:>5}  loss {step['loss']:.5f}  norm" for step in steps["steps"]]
    assert [line.partition("norm")[0] + "norm" for line in lines] == losses
    assert all(word in lines[0] for word in ("ms", "tokens/s", "GiB"))


def test_a_plan_is_verified(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In words and as JSON."""
    plan = written(JOB, tmp_path)
    assert run(["verify", plan]) == 0
    words = capsys.readouterr().out
    assert words.startswith("2 ranks: TP 1, PP 2 x 1, DP 1 x 1, 1f1b, 2 micro-batches, 3 layers\n  losses differ by ")
    assert words.endswith("agrees: float64 against one process, 1e-10 allowed\n")
    record = told(["verify", plan], 0, capsys)
    assert (record["holds"], record["tolerance"]) == (True, 1e-10)
    (one,) = record["runs"]
    assert one["parallelism"]["pp"] == 2
    assert 0 <= one["loss"] <= 1e-10
    assert 0 < one["gradient"] <= 1e-10


@pytest.mark.parametrize(("loss", "gradient"), [(0.5, 0.25), (0.0, math.nan), (math.inf, 0.0)])
def test_a_plan_that_differs_is_told(
    loss: float, gradient: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The answer is no, also where a difference is no number, which JSON lacks."""
    found = Verification(JOB, Agreement(loss, gradient, "final_norm.weight"))
    monkeypatch.setattr(runtime.verify, "verify", lambda *_: (found,))
    plan = written(JOB, tmp_path)
    assert run(["verify", plan]) == 1
    assert "DIFFERS: float64 against one process" in capsys.readouterr().out
    record = told(["verify", plan], 1, capsys)
    assert record["holds"] is False
    numbers = [None if not math.isfinite(one) else one for one in (loss, gradient)]
    assert [record["runs"][0]["loss"], record["runs"][0]["gradient"]] == numbers


def refused_job(kind: str) -> Job:
    """A job with something that is not executed."""
    from dataclasses import replace

    if kind == "offload":
        stage = replace(JOB.stages[1], offload=Offload(optimizer=0.5))
        return replace(JOB, stages=(JOB.stages[0], stage))
    wide = small_job(MODEL, pp=2, shard=2, layers=(2, 1), recipe=MEGATRON)
    if kind == "ring":
        return replace(wide, layout=wide.layout.replaced(cp=2, cp_type="ring", gpus_used=8))
    moe = {"experts": 4, "top_k": 1, "expert_ffn": 16}
    return replace(wide, model=MODEL.replaced(moe=moe), layout=wide.layout.replaced(ep=2))


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("offload", ["stages[1].offload.optimizer"]),
        ("ring", ["parallelism.cp_type"]),
        ("ep", ["model.moe", "parallelism.ep"]),
    ],
)
@pytest.mark.parametrize("verb", ["run", "verify"])
def test_what_is_not_executed_stops_before_a_rank_starts(
    verb: str,
    kind: str,
    fields: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With every field named."""
    for name in ("fork", "from_environment"):
        monkeypatch.setattr(runtime.world, name, lambda *_, **__: pytest.fail("ranks were started"))
    write(document_of(refused_job(kind)), tmp_path / "plan.json")
    flags = ["--local-ranks", "2"] if verb == "run" else []
    error = told([verb, str(tmp_path / "plan.json"), *flags], 3, capsys)["error"]
    assert error["kind"] == "unsupported"
    lines = error["message"].splitlines()
    assert len(lines) == len(fields)
    assert all(line.startswith(field) for line, field in zip(lines, fields, strict=True))


@pytest.mark.parametrize(
    ("flags", "environment", "message"),
    [
        ([], {}, "must be started by torchrun, or with --local-ranks N"),
        (["--local-ranks", "3"], {}, "the plan runs on 2 ranks (parallelism.gpus_used), got 3"),
        ([], {"RANK": "0"}, "the environment variable WORLD_SIZE must be a number >= 1, got nothing"),
        ([], {"WORLD_SIZE": "2"}, "the environment variable RANK must be a number in 0..1, got nothing"),
        ([], {"RANK": "x", "WORLD_SIZE": "2"}, "the environment variable RANK must be a number in 0..1, got 'x'"),
        (["--local-ranks", "2", "--data", "none.txt"], {}, "cannot read none.txt"),
        (["--local-ranks", "2", "--weights", "none"], {}, "cannot read none/config.json"),
        (["--local-ranks", "2", "--log", "none/log"], {}, "cannot write none/log: there is no folder"),
        (["--local-ranks", "2", "--report", "none/log"], {}, "cannot write none/log: there is no folder"),
        *(
            (["--local-ranks", "2", flag, value], {}, f"Invalid value for '{flag}'")
            for flag in ("--learning-rate", "--timeout")
            for value in ("nan", "inf", "-1")
        ),
    ],
)
def test_bad_input_is_told_in_a_line(
    flags: list[str],
    environment: dict[str, str],
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What it must be and what it is, and never a traceback."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    plan = written(JOB, tmp_path)
    monkeypatch.chdir(tmp_path)
    error = told(["run", plan, *flags], 2, capsys)["error"]
    assert message in error["message"]


def test_what_is_not_installed_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Packages that are not there, and a torch of another version."""
    import cli.extras

    plan = written(JOB, tmp_path)
    monkeypatch.setattr(cli.extras, "version", lambda _: "2.12.1+cpu")
    assert "needs torch 2.13, got 2.12.1+cpu" in told(["verify", plan], 2, capsys)["error"]["message"]
    monkeypatch.setattr(cli.extras, "find_spec", lambda name: None if name == "safetensors" else name)
    message = "plan run needs safetensors: pip install 'meshplan[torch]'"
    assert told(["run", plan, "--weights", "folder"], 2, capsys)["error"]["message"] == message
    monkeypatch.setattr(cli.extras, "find_spec", lambda _: None)
    assert "plan verify needs torch" in told(["verify", plan], 2, capsys)["error"]["message"]


@pytest.mark.slow
def test_torchrun_trains_as_forked_ranks_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two ranks of a launcher: the first tells every step, with the losses of --local-ranks."""
    plan = written(JOB, tmp_path)
    flags = ["run", plan, "--steps", "2", "--data", TEXT, "--json"]
    done = subprocess.run([*LAUNCHER, *flags], capture_output=True, text=True, timeout=LAUNCHER_S, check=False)
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    steps = json.loads(done.stdout)["steps"]
    torch.set_num_threads(1)
    alike = told(flags[:-1] + ["--local-ranks", "2"], 0, capsys)["steps"]
    assert [step["loss"] for step in steps] == [step["loss"] for step in alike]
    assert [step["gradient_norm"] for step in steps] == [step["gradient_norm"] for step in alike]


def children_of(pid: int) -> list[int]:
    """The processes that a process started, in order."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
def test_a_rank_of_torchrun_says_which_other_was_killed(tmp_path: Path) -> None:
    """In one line, before its launcher ends it; the steps before were told."""
    plan, errors = written(JOB, tmp_path), tmp_path / "errors"
    flags = ["run", plan, "--steps", "100000", "--data", TEXT]
    with errors.open("w") as file, subprocess.Popen([*LAUNCHER, *flags], stdout=subprocess.PIPE, stderr=file) as job:
        assert job.stdout is not None
        assert job.stdout.readline().startswith(b"step     0  loss")
        os.kill(children_of(job.pid)[1], signal.SIGKILL)
        job.communicate(timeout=LAUNCHER_S)
    assert job.returncode == 1
    said = [line for line in errors.read_text().splitlines() if line.startswith("plan: ")]
    assert said == ["plan: rank 1 of 2 ended; the others cannot go on without"]
    assert "Full Schedule" not in errors.read_text()

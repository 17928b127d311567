"""Forked ranks and what ends them."""

import math
import multiprocessing
import os
import signal
import time
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from runtime.errors import DataError, LaunchError, RankFailedError, TrainingError
from runtime.run import Options, train
from runtime.world import fork
from tests.runtime.checkpoints import llama_tensors
from tests.runtime.jobs import small_job, small_model
from tests.runtime.work import VICTIM, killed_mid_step, refused, stuck, waiting

JOB = small_job(small_model(2), tp=2, pp=2, micro_batches=2)
# Ranks wait for each other at most this long; that all have ended must not take much longer.
TIMEOUT_S, ALLOWED_S = 90.0, 240.0


@pytest.mark.slow
def test_a_rank_that_is_killed_mid_step_ends_all_and_is_named() -> None:
    """The steps before were told; the error names rank and signal, soon after."""
    records: list[dict[str, Any]] = []
    started_s = time.monotonic()
    with pytest.raises(RankFailedError, match=f"rank {VICTIM} of 4 was ended by SIGKILL"):
        fork(4, partial(killed_mid_step, JOB), records.append, TIMEOUT_S, on_gpus=False)
    assert time.monotonic() - started_s < ALLOWED_S
    assert [record["step"] for record in records] == [0, 1]


@pytest.mark.slow
def test_a_rank_that_waits_in_vain_ends_all() -> None:
    """The time limit of a collective is the end of the run."""
    started_s = time.monotonic()
    with pytest.raises(RankFailedError, match="of 4 failed: .*([Tt]imed out|[Tt]imeout)"):
        fork(4, partial(stuck, JOB), print, 5.0, on_gpus=False)
    assert time.monotonic() - started_s < ALLOWED_S


def test_weights_that_are_not_finite_end_the_run(tmp_path: Path) -> None:
    """A checkpoint with a nan: the loss of the first step is told to be, with the ranks that hold the head."""
    tensors = llama_tensors()
    for name in [name for name in tensors if ".0." in name]:
        tensors[name.replace(".0.", ".1.")] = tensors[name].clone()
    tensors["model.layers.1.mlp.down_proj.weight"][5, 7] = math.nan
    save_file(tensors, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    with pytest.raises(TrainingError, match="the loss of step 0 must be finite, got nan: that on ranks 2-3 is not"):
        fork(4, partial(train, JOB, Options(steps=9, weights=tmp_path)), print, TIMEOUT_S, on_gpus=False)


def starts_waiting_ranks(pipe: Connection) -> None:
    """A process with two ranks, whose processes it tells."""
    fork(2, waiting, lambda record: pipe.send(record["pid"]), TIMEOUT_S, on_gpus=False)


def is_running(pid: int) -> bool:
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_ranks_end_with_the_process_that_started_them() -> None:
    """Killed, it can no longer end them."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    parent = context.Process(target=starts_waiting_ranks, args=(theirs,))
    parent.start()
    ranks = [ours.recv(), ours.recv()]
    assert all(is_running(rank) for rank in ranks)
    parent.kill()
    parent.join()
    deadline_s = time.monotonic() + 10.0
    while any(is_running(rank) for rank in ranks) and time.monotonic() < deadline_s:
        time.sleep(0.05)
    left = [rank for rank in ranks if is_running(rank)]
    for rank in left:
        os.kill(rank, signal.SIGKILL)
    assert not left


def test_fewer_gpus_than_ranks_are_no_reason_to_train_on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are refused."""
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(LaunchError, match="--local-ranks 4 needs 4 GPUs, this machine has 2: hide them all"):
        fork(4, waiting, print, TIMEOUT_S)


def test_a_rank_that_meets_a_fault_alone_ends_all() -> None:
    """What it met is told, not what the others made of losing it."""
    with pytest.raises(DataError, match=r"tokens\.bin is cut off"):
        fork(4, partial(refused, JOB), print, TIMEOUT_S, on_gpus=False)


def test_fewer_ranks_than_the_plan_has_are_refused() -> None:
    """Both numbers are told."""
    with pytest.raises(LaunchError, match=r"the plan runs on 4 ranks \(parallelism.gpus_used\), got 2"):
        fork(2, partial(train, JOB, Options(steps=1)), print, TIMEOUT_S, on_gpus=False)

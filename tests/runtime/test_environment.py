"""Ranks that a launcher starts: what it must say, and what they say when one of them fails."""

import contextlib
import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Sequence
from functools import partial
from multiprocessing.connection import Connection

import pytest
import torch

from runtime.environment import Place, place
from runtime.errors import LaunchError, RuntimeFault
from runtime.run import Options, train
from runtime.world import from_environment
from tests.runtime.jobs import small_job, small_model
from tests.runtime.work import VICTIM, killed_mid_step, refused, stuck

JOB = small_job(small_model(2), tp=2, pp=2, micro_batches=2)
VARIABLES = {"RANK": "1", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
# Ranks wait for each other at most this long; that all have ended must not take much longer.
TIMEOUT_S, ALLOWED_S = 90.0, 60.0


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """The environment of one of four ranks."""
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    return monkeypatch


def test_a_rank_is_where_the_environment_says(variables: pytest.MonkeyPatch) -> None:
    """Without LOCAL_RANK it is alone on its machine with those before it."""
    assert place() == Place(rank=1, size=4, local=1, meeting="127.0.0.1:29500")
    variables.setenv("LOCAL_RANK", "0")
    assert place().local == 0
    variables.delenv("LOCAL_RANK")
    assert place().local == 1


@pytest.mark.parametrize("name", ["RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"])
def test_a_variable_that_is_missing_is_named(name: str, variables: pytest.MonkeyPatch) -> None:
    """So is one that is empty."""
    for change in (partial(variables.delenv, name), partial(variables.setenv, name, "")):
        change()
        with pytest.raises(LaunchError, match=rf"the environment variable {name} must be .*, got nothing"):
            place()


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("RANK", "one", r"a number in 0\.\.3"),
        ("RANK", "-1", r"a number in 0\.\.3"),
        ("RANK", "1.0", r"a number in 0\.\.3"),
        ("RANK", "4", r"a number in 0\.\.3"),
        ("WORLD_SIZE", "0", "a number >= 1"),
        ("WORLD_SIZE", "many", "a number >= 1"),
        ("WORLD_SIZE", "²", "a number >= 1"),
        ("LOCAL_RANK", "x", "a number >= 0"),
        ("MASTER_PORT", "http", r"a number in 1\.\.65535"),
        ("MASTER_PORT", "70000", r"a number in 1\.\.65535"),
    ],
)
def test_a_variable_that_is_wrong_is_named(name: str, value: str, allowed: str, variables: pytest.MonkeyPatch) -> None:
    """With what is allowed, and its value."""
    variables.setenv(name, value)
    with pytest.raises(LaunchError, match=rf"the environment variable {name} must be {allowed}, got '{value}'"):
        place()


def test_a_machine_with_too_few_gpus_is_refused(variables: pytest.MonkeyPatch) -> None:
    """Some ranks on GPUs and some on the CPU would wait for each other in vain."""
    variables.setattr(torch.cuda, "device_count", lambda: 1)
    with pytest.raises(LaunchError, match="LOCAL_RANK 1 needs 2 GPUs, this machine has 1"):
        from_environment(partial(train, JOB, Options(steps=1)), print, TIMEOUT_S)


def launched(rank: int, size: int, port: int, work: Callable[..., None], timeout_s: float, pipe: Connection) -> None:
    """The life of a rank as a launcher starts it: what it raised reaches the test."""
    torch.set_num_threads(1)
    os.environ |= {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    try:
        from_environment(work, lambda _: None, timeout_s)
        pipe.send("done")
    except RuntimeFault as fault:
        pipe.send(f"{type(fault).__name__}: {fault}")


def what_each_says(work: Callable[..., None], size: int, started: Sequence[int], timeout_s: float) -> dict[int, str]:
    """What each rank that was started raised; nothing of those that were killed or are stuck."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("fork")
    pipes, processes = {}, []
    for rank in started:
        pipes[rank], theirs = context.Pipe(duplex=False)
        process = context.Process(target=launched, args=(rank, size, port, work, timeout_s, theirs), daemon=True)
        process.start()
        theirs.close()
        processes.append(process)
    said = {}
    for rank, pipe in pipes.items():
        if pipe.poll(1.0 if rank == VICTIM else ALLOWED_S):
            with contextlib.suppress(EOFError):
                said[rank] = pipe.recv()
    for process in processes:
        process.kill()
        process.join()
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("work", "timeout_s", "told"),
    [
        (killed_mid_step, TIMEOUT_S, "RankFailedError: rank 3 of 4 ended; the others cannot go on without"),
        (refused, 6.0, "RankFailedError: rank 3 of 4 stopped: tokens.bin is cut off"),
        (stuck, 6.0, "; no sign of rank 3"),
    ],
)
def test_ranks_say_alike_which_of_them_failed(work: Callable[..., None], timeout_s: float, told: str) -> None:
    """Killed, stopped by a fault of its own, or stuck: within the limit, and without a traceback.

    Who is killed closes its connections; for the others the rest waits as long as it may.
    """
    started_s = time.monotonic()
    said = what_each_says(partial(work, JOB), 4, range(4), timeout_s)
    assert time.monotonic() - started_s < ALLOWED_S
    others = {said[rank] for rank in range(3)}
    assert len(others) == 1
    assert told in others.pop()
    assert said.get(3) == ("DataError: tokens.bin is cut off" if work is refused else None)


@pytest.mark.slow
@pytest.mark.parametrize("started", [0, 1])
def test_a_rank_that_is_alone_says_so_in_time(started: int) -> None:
    """The one that holds the store, and one that looks for it."""
    said = what_each_says(partial(train, JOB, Options(steps=1)), 2, [started], 2.0)
    assert f"RankFailedError: rank {started} of 2 must meet the others at 127.0.0.1:" in said[started]
    assert "within 2 s" in said[started]


@pytest.mark.slow
def test_fewer_ranks_than_the_plan_has_are_refused_by_all() -> None:
    """Both numbers are told."""
    said = what_each_says(partial(train, JOB, Options(steps=1)), 2, range(2), TIMEOUT_S)
    assert set(said.values()) == {"LaunchError: the plan runs on 4 ranks (parallelism.gpus_used), got 2"}

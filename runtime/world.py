"""Ranks as processes: those that torchrun started, or forked here and watched."""

import multiprocessing
import os
import signal
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from runtime.errors import LaunchError, RankFailedError, RuntimeFault
from runtime.host_memory import keep_freed_memory

__all__ = ["World", "fork", "from_environment", "started_by_torchrun"]

# What a rank tells the one who started it: records, one after the other.
Record = dict[str, Any]
Work = Callable[["World", Callable[[Record], None]], None]

# When a rank ends, others often fail of it a moment later; the first cause is looked for this long.
GRACE_S = 2.0


@dataclass(frozen=True)
class World:
    """A rank among all."""

    rank: int
    size: int
    device: torch.device


def started_by_torchrun() -> bool:
    """Whether the environment says which rank this process is."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def from_environment(work: Work, emit: Callable[[Record], None], timeout_s: float) -> None:
    """Runs the work of the rank that the environment names. Raises the RuntimeFault that it meets."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = int(os.environ.get("LOCAL_RANK", rank))
    on_gpus = torch.cuda.device_count() > local
    with _joined(rank, size, local, "env://", timeout_s, on_gpus=on_gpus) as world:
        work(world, emit)


def fork(
    size: int, work: Work, emit: Callable[[Record], None], timeout_s: float, *, on_gpus: bool | None = None
) -> None:
    """Runs some work on forked ranks to its end; their records are emitted here, in the order they come.

    On a GPU each where there are enough, unless `on_gpus` says otherwise.

    Raises the RuntimeFault of a rank, or RankFailedError that names the rank that ended first; all others are ended.
    """
    if torch.cuda.is_initialized():
        message = "--local-ranks cannot fork: CUDA is in use in this process"
        raise LaunchError(message)
    if on_gpus is None:
        on_gpus = torch.cuda.device_count() >= size
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes: list[BaseProcess] = []
        try:
            for rank in range(size):
                ours, theirs = context.Pipe(duplex=False)
                arguments = (rank, size, f"file://{folder}/store", work, theirs, timeout_s, on_gpus)
                process: BaseProcess = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            _watch(processes, pipes, emit)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _watch(processes: list[BaseProcess], pipes: list[Connection], emit: Callable[[Record], None]) -> None:
    """Passes records on until every rank is done. Raises what the first rank that failed met."""
    running = dict(enumerate(pipes))
    failures: dict[int, RuntimeFault | None] = {}
    deadline: float | None = None
    while running and (deadline is None or time.monotonic() < deadline):
        left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
        for pipe in wait(list(running.values()), left_s):
            assert isinstance(pipe, Connection)
            rank = pipes.index(pipe)
            kind, content = _received(pipe)
            if kind == "record":
                emit(content)
                continue
            del running[rank]
            if kind != "done":
                failures[rank] = content
                deadline = deadline or time.monotonic() + GRACE_S
    if failures:
        raise _cause(processes, failures)


def _received(pipe: Connection) -> tuple[str, Any]:
    try:
        kind, content = pipe.recv()
    except EOFError:
        return "gone", None
    return kind, content


def _cause(processes: list[BaseProcess], failures: dict[int, RuntimeFault | None]) -> RuntimeFault:
    """What to tell: that a rank was ended from outside before what a rank met, and that before what followed of it."""
    for rank in failures:
        processes[rank].join(GRACE_S)
        code = processes[rank].exitcode
        if failures[rank] is None and code is not None and code < 0:
            name = signal.Signals(-code).name
            return RankFailedError(f"rank {rank} of {len(processes)} was ended by {name}; the other ranks were ended")
    told = [error for error in failures.values() if error is not None and not isinstance(error, RankFailedError)]
    if told:
        return told[0]
    rank = next(iter(failures))
    return failures[rank] or RankFailedError(f"rank {rank} of {len(processes)} ended with {processes[rank].exitcode}")


def _serve(rank: int, size: int, where: str, work: Work, pipe: Connection, timeout_s: float, on_gpus: bool) -> None:
    """The life of a forked rank. Whatever it meets reaches the parent, which is the one to tell it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its ranks
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    try:
        with _joined(rank, size, rank, where, timeout_s, on_gpus=on_gpus) as world:
            work(world, lambda record: pipe.send(("record", record)))
        pipe.send(("done", None))
    except RuntimeFault as error:
        pipe.send(("fault", error))
    except (RuntimeError, OSError) as error:  # torch's own, such as a peer that has gone
        lines = traceback.format_exc().strip().splitlines()
        pipe.send(("fault", RankFailedError(f"rank {rank} of {size} failed: {error}\n{lines[-1]}")))


@contextmanager
def _joined(rank: int, size: int, local: int, where: str, timeout_s: float, *, on_gpus: bool) -> Iterator[World]:
    """The world, left at the end: a GPU each with NCCL, or the CPU with Gloo."""
    device = torch.device("cuda", local) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    else:
        keep_freed_memory()
    limit = timedelta(seconds=timeout_s)
    dist.init_process_group("nccl" if on_gpus else "gloo", init_method=where, rank=rank, world_size=size, timeout=limit)
    try:
        with _limited(limit):
            yield World(rank, size, device)
    finally:
        dist.destroy_process_group()


@contextmanager
def _limited(limit: timedelta) -> Iterator[None]:
    """Groups made meanwhile wait no longer: torch gives those of device meshes half an hour, whatever the world has."""
    names = ("default_pg_timeout", "default_pg_nccl_timeout")
    before = {name: getattr(distributed_c10d, name) for name in names}
    try:
        for name in names:
            setattr(distributed_c10d, name, limit)
        yield
    finally:
        for name, each in before.items():
            setattr(distributed_c10d, name, each)

"""Ranks as processes: those that torchrun started, or forked here and watched."""

import ctypes
import logging
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import Store, distributed_c10d
from torch.distributed.rendezvous import rendezvous

from runtime.environment import Place, place
from runtime.errors import LaunchError, RankFailedError, RuntimeFault
from runtime.groups import forget_groups
from runtime.host_memory import keep_freed_memory
from runtime.peers import GRACE_S, Peers, plain

__all__ = ["World", "fork", "from_environment"]

# What a rank tells the one who started it: records, one after the other.
Record = dict[str, Any]
Work = Callable[["World", Callable[[Record], None]], None]


PR_SET_PDEATHSIG = 1  # prctl(2)
# Of a rank that fails it prints the whole action table, on each rank that the failure reaches.
TALKATIVE = "torch.distributed.pipelining.schedules"


@dataclass(frozen=True)
class World:
    """A rank among all."""

    rank: int
    size: int
    device: torch.device


def from_environment(work: Work, emit: Callable[[Record], None], timeout_s: float) -> None:
    """Runs the work of the rank that the environment names.

    Raises the RuntimeFault that the rank meets, or RankFailedError that says of which rank it failed, where that shows.
    """
    here = place()
    on_gpus = _uses_gpus(here.local + 1, f"LOCAL_RANK {here.local}")
    store = _met(here, timeout_s)
    peers = Peers(store, here.rank, here.size)
    with _joined(here.rank, here.size, here.local, store, timeout_s, on_gpus=on_gpus) as world:
        try:
            work(world, emit)
        except RuntimeFault as fault:
            peers.tell(fault)
            raise
        except (RuntimeError, OSError) as error:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)  # a launcher that ends the rest lets them say why
            raise peers.explained(error) from error


def _met(here: Place, timeout_s: float) -> Store:
    """The store that the ranks share. Raises RankFailedError when they do not meet in time."""
    limit = timedelta(seconds=timeout_s)
    try:
        store, _, _ = next(rendezvous("env://", here.rank, here.size, timeout=limit))
    except (RuntimeError, OSError) as error:
        rule = f"must meet the others at {here.meeting} within {timeout_s:g} s"
        message = f"rank {here.rank} of {here.size} {rule}: {plain(error)}"
        raise RankFailedError(message) from error
    return store


def fork(
    size: int, work: Work, emit: Callable[[Record], None], timeout_s: float, *, on_gpus: bool | None = None
) -> None:
    """Runs some work on forked ranks to its end; their records are emitted here, in the order they come.

    On a GPU each where there are any, unless `on_gpus` says otherwise.

    Raises the RuntimeFault of a rank, or RankFailedError that names the rank that ended first; all others are ended,
    as they are when this process ends. Raises LaunchError when there are fewer GPUs than ranks.
    """
    if torch.cuda.is_initialized():
        message = "--local-ranks cannot fork: CUDA is in use in this process"
        raise LaunchError(message)
    if on_gpus is None:
        on_gpus = _uses_gpus(size, f"--local-ranks {size}")
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes: list[BaseProcess] = []
        try:
            for rank in range(size):
                ours, theirs = context.Pipe(duplex=False)
                arguments = (rank, size, f"{folder}/store", work, theirs, timeout_s, on_gpus)
                process: BaseProcess = context.Process(target=_serve, args=arguments, daemon=True)
                with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # other threads are idle
                    process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            _watch(processes, pipes, emit)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _uses_gpus(ranks: int, given: str) -> bool:
    """Whether ranks run on GPUs: they do on a machine that has any. Raises LaunchError when it has too few."""
    gpus = torch.cuda.device_count()
    if 0 < gpus < ranks:
        message = f"{given} needs {ranks} GPUs, this machine has {gpus}: hide them all to run on its CPU"
        raise LaunchError(message)
    return gpus > 0


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
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # or the kernel, when the parent was killed
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    try:
        with _joined(rank, size, rank, dist.FileStore(where, size), timeout_s, on_gpus=on_gpus) as world:
            work(world, lambda record: pipe.send(("record", record)))
        pipe.send(("done", None))
    except RuntimeFault as error:
        pipe.send(("fault", error))
    except (RuntimeError, OSError) as error:  # torch's own, such as a peer that has gone
        pipe.send(("fault", RankFailedError(f"rank {rank} of {size} failed: {plain(error)}")))


@contextmanager
def _joined(rank: int, size: int, local: int, store: Store, timeout_s: float, *, on_gpus: bool) -> Iterator[World]:
    """The world, left at the end: a GPU each with NCCL, or the CPU with Gloo. Raises RankFailedError."""
    device = torch.device("cuda", local) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    else:
        keep_freed_memory()
    limit, backend = timedelta(seconds=timeout_s), "nccl" if on_gpus else "gloo"
    logging.getLogger(TALKATIVE).setLevel(logging.CRITICAL)
    try:
        store.set_timeout(limit)
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except (RuntimeError, OSError) as error:
        message = f"rank {rank} of {size} must join the others within {timeout_s:g} s: {plain(error)}"
        raise RankFailedError(message) from error
    try:
        with _limited(limit):
            yield World(rank, size, device)
    finally:
        dist.destroy_process_group()
        forget_groups()


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

"""Ranks that measure together: forked on this machine and watched, or those that torchrun started.

All ranks measure the same point at the same time, as they will train: on a CPU they share caches and memory, on a GPU
links. A rank that does not answer in time ends the crew with a message, never with a hang.
"""

import multiprocessing
import os
import signal
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol

import torch
import torch.distributed as dist

from profiler.errors import HungError, ProfilerError, RankLostError
from profiler.points import Measured, Point, Timing

__all__ = ["Crew", "Measure", "forked", "joined"]

Measure = Callable[[Point, torch.device, float], Timing]
"""What a rank does for a point, in so many seconds; every rank does it at the same time."""
Reply = tuple[str, Any]

# What a rank may take beyond the seconds that it was given, before it counts as hung.
PATIENCE_S = 60.0


class Crew(Protocol):
    """Ranks that measure."""

    ranks: int
    device: torch.device

    def measure(self, point: Point, limit_s: float) -> Measured:
        """A point, measured by all ranks in about so many seconds. Raises ProfilerError."""
        ...


def pooled(point: Point, timings: Sequence[Timing]) -> Measured:
    """What ranks found, as one: the mean of their medians, the widest spread."""
    return Measured(
        point=point,
        seconds=statistics.fmean(timing.median_s for timing in timings),
        spread=max(timing.spread for timing in timings),
        repetitions=sum(timing.repetitions for timing in timings),
        outliers=sum(timing.outliers for timing in timings),
        interrupted=sum(timing.interrupted for timing in timings),
    )


class Forked:
    """Ranks that were forked here, a pipe to each."""

    def __init__(
        self, processes: list[BaseProcess], pipes: list[Connection], device: torch.device, patience_s: float
    ) -> None:
        self._processes, self._pipes = processes, pipes
        self.device, self.ranks = device, len(processes)
        self._patience_s = patience_s

    def measure(self, point: Point, limit_s: float) -> Measured:
        """A point, measured by all ranks in about so many seconds.

        Raises HungError, RankLostError, and ProfilerError for what the ranks met.
        """
        for pipe in self._pipes:
            with suppress(OSError):  # a rank that has gone is told of below
                pipe.send((point, limit_s))
        return pooled(point, [self._content(point, *reply) for reply in self._replies(point, limit_s)])

    def _replies(self, point: Point, limit_s: float) -> list[Reply]:
        deadline = time.monotonic() + limit_s + self._patience_s
        replies: dict[int, Reply] = {}
        while len(replies) < self.ranks:
            waiting = [pipe for rank, pipe in enumerate(self._pipes) if rank not in replies]
            ready = wait(waiting, max(0.0, deadline - time.monotonic()))
            if not ready:
                silent = [rank for rank in range(self.ranks) if rank not in replies]
                message = (
                    f"rank {silent[0]} of {self.ranks} did not finish {point} within "
                    f"{limit_s + self._patience_s:.0f} s: "
                    "a collective hangs, or the device does; the ranks were ended, what was measured is kept"
                )
                raise HungError(message)
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = self._pipes.index(pipe)
                replies[rank] = self._received(rank)
                if replies[rank][0] == "failed":
                    return [replies[rank]]
        return [replies[rank] for rank in range(self.ranks)]

    def _received(self, rank: int) -> Reply:
        try:
            reply: Reply = self._pipes[rank].recv()
        except (EOFError, OSError):
            process = self._processes[rank]
            process.join(1.0)
            code = process.exitcode
            how = f"by {signal.Signals(-code).name}" if code is not None and code < 0 else f"with {code}"
            message = f"rank {rank} of {self.ranks} ended {how} while it measured; what was measured is kept"
            raise RankLostError(message) from None
        return reply

    @staticmethod
    def _content(point: Point, kind: str, content: Any) -> Timing:
        if kind == "failed":
            message = f"{point} could not be measured: {content}"
            raise ProfilerError(message)
        timing: Timing = content
        return timing


@contextmanager
def forked(ranks: int, measure: Measure, *, on_gpus: bool, patience_s: float = PATIENCE_S) -> Iterator[Forked]:
    """So many ranks forked here, ended at the end of the block.

    They share the processor's cores out among them, as ranks that train do.
    """
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        pipes: list[Connection] = []
        processes: list[BaseProcess] = []
        try:
            for rank in range(ranks):
                ours, theirs = context.Pipe()
                arguments = (rank, ranks, f"file://{folder}/store", measure, theirs, patience_s, on_gpus)
                process: BaseProcess = context.Process(target=_serve, args=arguments, daemon=True)
                process.start()
                theirs.close()
                pipes.append(ours)
                processes.append(process)
            yield Forked(processes, pipes, torch.device("cuda" if on_gpus else "cpu"), patience_s)
        finally:
            for process in processes:
                process.kill()
                process.join()


def _serve(
    rank: int, size: int, where: str, measure: Measure, pipe: Connection, patience_s: float, on_gpus: bool
) -> None:
    """The life of a forked rank: it measures what it is sent until its parent ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its ranks
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    torch.manual_seed(rank)
    device = torch.device("cuda", rank) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    limit = timedelta(seconds=patience_s)
    dist.init_process_group("nccl" if on_gpus else "gloo", init_method=where, rank=rank, world_size=size, timeout=limit)
    while True:
        try:
            point, limit_s = pipe.recv()
        except EOFError:
            return
        pipe.send(_tried(measure, point, device, limit_s))


def _tried(measure: Measure, point: Point, device: torch.device, limit_s: float) -> Reply:
    try:
        return "timing", measure(point, device, limit_s)
    except (RuntimeError, OSError, MemoryError) as error:  # torch's own: memory that is not there, a peer that has gone
        return "failed", f"{error}".splitlines()[0] if str(error) else traceback.format_exc().splitlines()[-1]


class Joined:
    """The ranks that torchrun started: the first says what to measure, all do it, the first gets what they found."""

    def __init__(self, measure: Measure, device: torch.device) -> None:
        self.ranks, self.device = dist.get_world_size(), device
        self._measure = measure

    def measure(self, point: Point, limit_s: float) -> Measured:
        """A point, measured by all ranks; only the first rank calls it. Raises ProfilerError for what a rank met."""
        dist.broadcast_object_list([(point, limit_s)], device=self.device)
        return pooled(point, [Forked._content(point, *reply) for reply in self._found(point, limit_s)])

    def follow(self) -> None:
        """What every rank but the first does: it measures what it is told until there is nothing left."""
        while True:
            told: list[Any] = [None]
            dist.broadcast_object_list(told, device=self.device)
            if told[0] is None:
                return
            self._found(*told[0])

    def finish(self) -> None:
        """Lets the other ranks go; only the first rank calls it."""
        dist.broadcast_object_list([None], device=self.device)

    def _found(self, point: Point, limit_s: float) -> list[Reply]:
        found: list[Any] = [None] * self.ranks
        dist.all_gather_object(found, _tried(self._measure, point, self.device, limit_s))
        return found


@contextmanager
def joined(measure: Measure, *, on_gpus: bool, patience_s: float = PATIENCE_S) -> Iterator[Joined]:
    """The ranks that the environment names, left at the end of the block."""
    local = int(os.environ.get("LOCAL_RANK", os.environ["RANK"]))
    device = torch.device("cuda", local) if on_gpus else torch.device("cpu")
    if on_gpus:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if on_gpus else "gloo", timeout=timedelta(seconds=patience_s))
    try:
        yield Joined(measure, device)
    finally:
        dist.destroy_process_group()

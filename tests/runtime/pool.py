"""Worker processes that stay: ranks are forked once for each world size and run many cases."""

import contextlib
import logging
import multiprocessing
import os
import tempfile
import traceback
import warnings
from collections.abc import Callable
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from typing import Any

TIMEOUT_S = 900.0
# Gloo's threads of each layout's groups stay until their process ends, and each wakes a hundred times a second.
RUNS = 4


class Pool:
    """Ranks of a world, each of which runs what it is sent."""

    def __init__(self, size: int) -> None:
        import torch.distributed.pipelining  # before the fork, so that it is imported once

        torch.set_num_threads(1)  # a rank lacks the other threads of its parent
        self.size = size
        self.failed = False
        self._runs = 0
        context = multiprocessing.get_context("fork")
        self._folder = tempfile.TemporaryDirectory()
        self._pipes: list[Connection] = []
        self._processes = []
        for rank in range(size):
            ours, theirs = context.Pipe()
            where = f"file://{self._folder.name}/store"
            process = context.Process(target=_serve, args=(rank, size, where, theirs), daemon=True)
            with warnings.catch_warnings(action="ignore", category=DeprecationWarning):  # other threads are idle
                process.start()
            self._pipes.append(ours)
            self._processes.append(process)

    @property
    def worn_out(self) -> bool:
        """Whether its ranks have run so many cases that what these left behind slows down the next."""
        return self._runs >= RUNS

    def run(self, function: Callable[..., Any], *arguments: Any) -> list[Any]:
        """What a function returns on each rank. Raises AssertionError with the trace of a rank that failed.

        After a failure the ranks are out of step with each other: they are ended.
        """
        self._runs += 1
        for pipe in self._pipes:
            pipe.send((function, arguments))
        answers: dict[int, Any] = {}
        self.failed = True
        while len(answers) < self.size:
            waiting = [pipe for rank, pipe in enumerate(self._pipes) if rank not in answers]
            ready = wait(waiting, TIMEOUT_S)
            if not ready:
                message = f"ranks {sorted(set(range(self.size)) - set(answers))} of {self.size} did not answer"
                raise AssertionError(message)
            for pipe in ready:
                rank = self._pipes.index(pipe)
                failed, answers[rank] = pipe.recv()
                if failed:
                    message = f"rank {rank} of {self.size}:\n{answers[rank]}"
                    raise AssertionError(message)
        self.failed = False
        return [answers[rank] for rank in range(self.size)]

    def close(self) -> None:
        """Ends the ranks."""
        for process in self._processes:
            process.kill()
            process.join()
        self._folder.cleanup()


def _serve(rank: int, size: int, where: str, pipe: Connection) -> None:
    import torch.distributed as dist

    logging.disable(logging.ERROR)
    with open(os.devnull, "w") as nowhere, contextlib.redirect_stderr(nowhere):
        limit = timedelta(seconds=TIMEOUT_S)
        dist.init_process_group("gloo", init_method=where, rank=rank, world_size=size, timeout=limit)
        while True:
            function, arguments = pipe.recv()
            try:
                pipe.send((False, function(*arguments)))
            except BaseException:
                pipe.send((True, traceback.format_exc()))

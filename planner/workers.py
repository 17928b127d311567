"""Parts of a search that run beside each other, in processes of their own, and give what they would give in one.

What a part gives depends on what it is given alone, and parts are cut alike whoever works on them: so no answer
depends on how many processes there are, nor on which of them was faster.
"""

from __future__ import annotations

import multiprocessing
import signal
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from planner.errors import PlannerError
from planner.predict import CostModel
from planner.request import PlanRequest

__all__ = ["Workers"]

Part = tuple[Any, ...]

# Parts that another process has at a time: the one it works on and the next.
AHEAD = 2


class Workers:
    """This process and `jobs - 1` others, which are started when first there is enough to do."""

    def __init__(self, model: CostModel, jobs: int) -> None:
        self._model = model
        self._jobs = jobs
        self._pool: ProcessPoolExecutor | None = None
        self._ready: list[Future[Any]] = []

    def start(self) -> None:
        """None; the other processes begin to load what they need. Until they have, this one works alone."""
        if self._jobs == 1 or self._pool is not None:
            return
        self._pool = ProcessPoolExecutor(
            self._jobs - 1,
            # A fork would copy whatever threads of numerical libraries hold.
            mp_context=multiprocessing.get_context("spawn"),
            initializer=_load,
            initargs=(self._model.request, self._model.offload),
        )
        self._ready = [self._pool.submit(_nothing) for _ in range(self._jobs - 1)]

    def map(self, function: Callable[..., Any], parts: Sequence[Part]) -> list[Any]:
        """`function(model, *part)` of every part, in their order; `function` is one that can be imported.

        Raises PlannerError when another process was ended.
        """
        if self._pool is None or not all(future.done() for future in self._ready):
            return [function(self._model, *part) for part in parts]
        try:
            found = self._shared(self._pool, function, parts)
        except BrokenProcessPool as error:
            message = f"one of the {self._jobs} processes of --jobs was ended; with --jobs 1 there is one only"
            raise PlannerError(message) from error
        return [found[index] for index in range(len(parts))]

    def _shared(self, pool: ProcessPoolExecutor, function: Callable[..., Any], parts: Sequence[Part]) -> dict[int, Any]:
        """What each part gives: this process begins in front, the others at the end."""
        left = deque(range(len(parts)))
        found: dict[int, Any] = {}
        others: dict[int, Future[Any]] = {}
        while left or others:
            while len(left) > 1 and len(others) < AHEAD * (self._jobs - 1):
                index = left.pop()
                others[index] = pool.submit(_run, function, *parts[index])
            if left:
                index = left.popleft()
                found[index] = function(self._model, *parts[index])
            else:
                wait(others.values(), return_when=FIRST_COMPLETED)
            done = {index: future.result() for index, future in others.items() if future.done()}
            found |= done
            others = {index: future for index, future in others.items() if index not in done}
        return found

    def stop(self) -> None:
        """None; the other processes end."""
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None


_MODEL: list[CostModel] = []
"""In another process: the model that it was started for."""


def _load(request: PlanRequest, offload: bool) -> None:
    """None; the process gets its model. An interrupt is for the first process, which ends the others."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    _MODEL[:] = [CostModel(request, offload=offload)]


def _nothing() -> None:
    """None; that it was called says that the process has loaded."""


def _run(function: Callable[..., Any], *part: Any) -> Any:
    return function(_MODEL[0], *part)

"""Work that goes wrong, for ranks that are forked."""

import os
import signal
from collections.abc import Callable
from typing import Any

from planner.document.job import Job
from runtime.errors import DataError
from runtime.run import Options, train
from runtime.world import World

VICTIM = 3


def killed_mid_step(job: Job, world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """Training in which a rank is killed between the backward and the optimizer of step 2."""
    from runtime.optimizer import Optimizer

    complete = Optimizer.complete_gradients
    steps = iter(range(10))

    def complete_or_die(self: Optimizer) -> None:
        if next(steps) == 2 and world.rank == VICTIM:
            os.kill(os.getpid(), signal.SIGKILL)
        complete(self)

    Optimizer.complete_gradients = complete_or_die  # type: ignore[method-assign]
    train(job, Options(steps=10), world, emit)


def refused(job: Job, world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """Training in which one rank alone meets a fault, while the others go on to wait for it."""
    if world.rank == VICTIM:
        message = "tokens.bin is cut off"
        raise DataError(message)
    train(job, Options(steps=1), world, emit)


def stuck(job: Job, world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """A rank that never takes part, while the others wait for it."""
    if world.rank == VICTIM:
        signal.pause()
    train(job, Options(steps=1), world, emit)


def waiting(world: World, emit: Callable[[dict[str, Any]], None]) -> None:
    """A rank that says which process it is and waits for ever."""
    emit({"pid": os.getpid()})
    signal.pause()

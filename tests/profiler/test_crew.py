"""Ranks that measure together, and what is told of those that hang, end or fail."""

import os
import signal
import time

import pytest

pytest.importorskip("torch")

import torch
import torch.distributed as dist

from profiler.crew import forked
from profiler.errors import HungError, ProfilerError, RankLostError
from profiler.points import Point, Timing


def test_all_ranks_measure_at_the_same_time() -> None:
    """What ranks find is pooled: the mean of their medians, repetitions of all."""

    def measure(point: Point, device: torch.device, limit_s: float) -> Timing:
        dist.barrier()
        return Timing(1.0 + dist.get_rank(), 0.1 * dist.get_rank(), 10, outliers=1)

    with forked(2, measure, on_gpus=False) as crew:
        found = crew.measure(Point("any", (1,)), 0.1)
    assert (found.seconds, found.spread, found.repetitions, found.outliers) == (1.5, 0.1, 20, 2)


@pytest.mark.parametrize(
    ("fault", "error", "told"),
    [
        ("hangs", HungError, r"rank 1 of 2 did not finish any\(1\) within 1 s: a collective hangs"),
        ("ends", RankLostError, "rank 1 of 2 ended by SIGKILL while it measured"),
        ("fails", ProfilerError, r"any\(1\) could not be measured: not enough memory"),
    ],
)
def test_faults_of_a_rank_are_told(fault: str, error: type[ProfilerError], told: str) -> None:
    """The crew ends with one message that names the rank and the point; no process stays."""

    def measure(point: Point, device: torch.device, limit_s: float) -> Timing:
        if dist.get_rank() == 1:
            if fault == "hangs":
                time.sleep(60.0)
            if fault == "ends":
                os.kill(os.getpid(), signal.SIGKILL)
            message = "not enough memory"
            raise RuntimeError(message)
        return Timing(1.0, 0.0, 5)

    began = time.monotonic()
    with pytest.raises(error, match=told), forked(2, measure, on_gpus=False, patience_s=1.0) as crew:
        crew.measure(Point("any", (1,)), 0.1)
    assert time.monotonic() - began < 30.0

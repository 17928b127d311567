"""Repeats an operator and times it: warm-up, buffers in rotation, what another process or a slow clock has spoilt set
apart, the median of the rest.

Buffers rotate so that no repetition finds its operands in the cache, as in training, where an operator comes round
once a layer. On a CPU the kernel says how long a thread that could run was kept waiting for a processor (proc(5),
/proc/thread-self/schedstat): repetitions without such a wait count, and where there are too few, what is left of each
without it. On a GPU events of the device are taken, round so many repetitions that the host is ahead.
"""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch

from profiler.points import Timing

__all__ = ["Clock", "Run", "Sample", "clock_of", "summary", "timed", "waited_s"]

WARM_UP = 2
FEWEST, MOST = 5, 200
SHORTEST_S = 1e-9
# A sample is of so many repetitions in a row that it takes this long: what the clock itself takes is then nothing.
SHORTEST_SAMPLE_S = 200e-6
# A sample that waited for the processor longer than this part of its time is disturbed.
MOST_WAIT = 0.01
SCHEDULER = Path("/proc/thread-self/schedstat")
# A sample is far from the others beyond so many scaled median deviations.
FAR = 5.0
SCALED_DEVIATION = 1.4826  # of a normal distribution: standard deviation over median deviation

Run = Callable[[int], Any]
"""One repetition on the buffers of this number."""


@dataclass(frozen=True)
class Sample:
    """Some repetitions in a row: seconds of one, and of these the seconds that others had the processor."""

    seconds: float
    waited_s: float = 0.0


class Clock(Protocol):
    """Times repetitions on a device."""

    def sample(self, run: Run, first: int, count: int) -> Sample:
        """`count` repetitions from number `first` on."""
        ...


class HostClock:
    """A monotonic clock, and what the kernel says of the thread."""

    def sample(self, run: Run, first: int, count: int) -> Sample:
        before = waited_s()
        start = time.perf_counter()
        for number in range(first, first + count):
            run(number)
        seconds = (time.perf_counter() - start) / count
        return Sample(seconds, (waited_s() - before) / count)


class EventClock:
    """Events of a CUDA device, which a kernel that waits holds back until the host has launched all repetitions."""

    # Cycles that the device waits for the host to launch a repetition, at about 1.5 GHz 20 us.
    CYCLES_A_LAUNCH = 30_000

    def sample(self, run: Run, first: int, count: int) -> Sample:
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(self.CYCLES_A_LAUNCH * count)
        start.record()
        for number in range(first, first + count):
            run(number)
        end.record()
        end.synchronize()
        return Sample(start.elapsed_time(end) / 1e3 / count)


def clock_of(device: torch.device) -> Clock:
    """The clock of a device."""
    return EventClock() if device.type == "cuda" else HostClock()


def timed(clock: Clock, run: Run, limit_s: float) -> Timing:
    """What an operator takes, of samples taken for `limit_s` seconds, five at least."""
    deadline = time.perf_counter() + limit_s
    for number in range(WARM_UP):
        run(number)
    count = _count(clock.sample(run, WARM_UP, 1).seconds)
    number = WARM_UP + 1
    samples: list[Sample] = []
    while len(samples) < FEWEST or (time.perf_counter() < deadline and len(samples) < MOST):
        samples.append(clock.sample(run, number, count))
        number += count
    return summary(samples)


def waited_s() -> float:
    """Seconds that this thread could have run and did not, for others had the processor; 0 where nothing says so."""
    try:
        return int(SCHEDULER.read_text(encoding="ascii").split()[1]) / 1e9
    except (OSError, IndexError, ValueError):
        return 0.0


def summary(samples: Sequence[Sample], *, waits_overlap: bool = False) -> Timing:
    """The median of the samples that count.

    Samples that waited for the processor do not count, unless too few did not: then what is left of all without the
    wait, or, where waits of several ranks may overlap, those that waited least. Of these, ones far from the median are
    left out.
    """
    waits = [sample.waited_s > MOST_WAIT * sample.seconds for sample in samples]
    if waits.count(False) >= FEWEST:
        counted = [sample.seconds for sample, waited in zip(samples, waits, strict=True) if not waited]
    elif waits_overlap:
        counted = [sample.seconds for sample in sorted(samples, key=lambda sample: sample.waited_s)[:FEWEST]]
    else:
        counted = [max(sample.seconds - sample.waited_s, SHORTEST_S) for sample in samples]
    median = statistics.median(counted)
    deviation = SCALED_DEVIATION * statistics.median(abs(seconds - median) for seconds in counted)
    near = [seconds for seconds in counted if abs(seconds - median) <= FAR * deviation] or counted
    low, median, high = statistics.quantiles(near, n=4) if len(near) > 1 else near * 3
    return Timing(
        median_s=median,
        spread=(high - low) / median,
        repetitions=len(near),
        outliers=len(counted) - len(near),
        interrupted=sum(waits),
    )


def _count(seconds: float) -> int:
    return max(1, min(1000, round(SHORTEST_SAMPLE_S / max(seconds, 1e-9))))

"""What a rank does for a point: it makes the operator on drawn tensors, as often as the cache asks, and times it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from profiler.candidates import HOST_COPIES, LINKS, PIPELINES, SHARED_LAYERS, STATES
from profiler.points import Point, Timing
from profiler.streams import timed_beside
from profiler.timing import Clock, Sample, clock_of, summary, timed

__all__ = ["Alone", "Maker", "measure_with", "most_bytes"]

# Buffers in rotation fill the last cache this many times over; no more than so many sets of them.
CACHES, MOST_SETS = 2, 64
CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE_BYTES = 32 * 2**20
# Operators in which a rank waits for others.
TOGETHER = (*LINKS, *SHARED_LAYERS)
COLLECTIVE_SAMPLES = (5, 100)
# Repetitions before the first that counts; a whole pipeline is long and settles at once.
COLLECTIVE_WARM_UP, PIPELINE_WARM_UP = 3, 1
# An operator's temporaries beside its tensors: a loss on a CPU takes twice what it reads and writes.
WITH_TEMPORARIES = 3
# What a rank holds of a parameter whose states it copies, adds up and steps, in bytes.
STATE_BYTES = 24


class Alone(Protocol):
    """One repetition of an operator, and the bytes of its tensors."""

    @property
    def run(self) -> Callable[[], object]: ...

    @property
    def bytes(self) -> int: ...


Maker = Callable[[tuple[int, ...], tuple[int, ...], torch.device], Any]


def measure_with(
    makers: Mapping[str, Maker], *, prepare: Callable[[], None] | None = None
) -> Callable[[Point, torch.device, float], Timing]:
    """The function that measures points with some makers of operators.

    `prepare` is called once on every rank before the first point.
    """
    waiting = [prepare] if prepare else []

    def measure(point: Point, device: torch.device, limit_s: float) -> Timing:
        while waiting:
            waiting.pop()()
        if ":" in point.operator:
            return timed_beside(point, device, limit_s)
        make = makers[point.operator]
        first = make(point.sizes, point.detail, device)
        sets = max(1, min(MOST_SETS, -(-CACHES * cache_bytes(device) // max(1, first.bytes))))
        runs = [first.run, *(make(point.sizes, point.detail, device).run for _ in range(sets - 1))]
        dist.barrier()
        clock = clock_of(device)

        # What operators make stays for a round of the buffers, as activations do: the next one finds cold memory, too.
        made: list[object] = [None] * sets

        def run(number: int) -> None:
            made[number % sets] = None
            made[number % sets] = runs[number % sets]()

        if point.operator in TOGETHER:
            return _of_collective(clock, run, limit_s)
        if point.operator in PIPELINES:
            return _of_pipeline(clock, run, limit_s)
        return timed(clock, run, limit_s)

    return measure


def most_bytes(point: Point, makers: Mapping[str, Maker]) -> float:
    """About the most bytes that a rank has allocated while it measures a point; nothing is allocated to tell."""
    if point.operator in STATES:
        return STATE_BYTES * point.sizes[0]
    if point.operator in (*HOST_COPIES, *LINKS) or ":" in point.operator:  # bytes, to and from
        return 2.0 * point.sizes[0]
    return WITH_TEMPORARIES * makers[point.operator](point.sizes, point.detail, torch.device("meta")).bytes


def _of_collective(clock: Clock, run: Callable[[int], object], limit_s: float) -> Timing:
    """Every rank takes as many samples; waiting for the others is part of the work."""
    samples = _as_many(clock, run, limit_s, COLLECTIVE_WARM_UP)
    # A rank that waited for a processor held all others up.
    waits = _on_all(torch.tensor([sample.waited_s for sample in samples]))
    together = [replace(one, waited_s=wait) for one, wait in zip(samples, waits.tolist(), strict=True)]
    return summary(together, waits_overlap=True)


def _of_pipeline(clock: Clock, run: Callable[[int], object], limit_s: float) -> Timing:
    """The same, but waiting for a processor is the work's own: threads that move its bytes have it meanwhile."""
    samples = _as_many(clock, run, limit_s, PIPELINE_WARM_UP)
    return summary([replace(sample, waited_s=0.0) for sample in samples])


def _as_many(clock: Clock, run: Callable[[int], object], limit_s: float, warm_up: int) -> list[Sample]:
    """As many samples on every rank, so many that the slowest needs the time."""
    for number in range(warm_up):
        run(number)
    few, most = COLLECTIVE_SAMPLES
    taken = _on_all(torch.tensor([clock.sample(run, warm_up, 1).seconds]))
    count = max(few, min(most, int(limit_s / max(float(taken), 1e-6))))
    return [clock.sample(run, warm_up + 1 + number, 1) for number in range(count)]


def _on_all(values: torch.Tensor) -> torch.Tensor:
    """The largest of every rank's."""
    if dist.get_backend() != "gloo":
        values = values.cuda()
    dist.all_reduce(values, op=dist.ReduceOp.MAX)
    return values


def cache_bytes(device: torch.device) -> int:
    """Bytes of the last cache of a device, of a CPU's as the kernel tells them."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = [path.read_text(encoding="ascii").strip() for path in sorted(CACHE_FOLDER.glob("index*/size"))]
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=UNKNOWN_CACHE_BYTES)

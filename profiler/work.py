"""What a rank does for a point: it makes the operator on drawn tensors, as often as the cache asks, and times it."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

import torch
import torch.distributed as dist

from profiler.candidates import HOST_COPIES, STATES
from profiler.points import Point, Timing
from profiler.streams import timed_beside
from profiler.timing import Clock, clock_of, summary, timed

__all__ = ["Alone", "Maker", "measure_with", "most_bytes"]

# Buffers in rotation fill the last cache this many times over; no more than so many sets of them.
CACHES, MOST_SETS = 2, 64
CACHE_FOLDER = Path("/sys/devices/system/cpu/cpu0/cache")
UNKNOWN_CACHE_BYTES = 32 * 2**20
COLLECTIVE_SAMPLES = (5, 100)
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
    makers: Mapping[str, Maker], collectives: frozenset[str], *, prepare: Callable[[], None] | None = None
) -> Callable[[Point, torch.device, float], Timing]:
    """The function that measures points with some makers of operators, of which some wait for other ranks.

    `prepare` is called once on every rank before the first point.
    """
    waiting = [prepare] if prepare else []

    def measure(point: Point, device: torch.device, limit_s: float) -> Timing:
        while waiting:
            waiting.pop()()
        if ":" in point.operator:
            return timed_beside(point, device, limit_s)
        make = makers[point.operator]
        together = point.operator in collectives
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

        if together:
            return _of_collective(clock, run, limit_s)
        return timed(clock, run, limit_s)

    return measure


def most_bytes(point: Point, makers: Mapping[str, Maker]) -> float:
    """About the most bytes that a rank has allocated while it measures a point; nothing is allocated to tell."""
    if point.operator in STATES:
        return STATE_BYTES * point.sizes[0]
    if point.operator in HOST_COPIES or point.operator not in makers:  # collectives, hops: bytes, to and from
        return 2.0 * point.sizes[0]
    return WITH_TEMPORARIES * makers[point.operator](point.sizes, point.detail, torch.device("meta")).bytes


def _of_collective(clock: Clock, run: Callable[[int], object], limit_s: float) -> Timing:
    """Every rank takes as many samples; waiting for the others is part of the work."""
    for number in range(3):
        run(number)
    few, most = COLLECTIVE_SAMPLES
    taken = torch.tensor([clock.sample(run, 3, 1).seconds])
    if dist.get_backend() != "gloo":
        taken = taken.cuda()
    dist.all_reduce(taken, op=dist.ReduceOp.MAX)
    count = max(few, min(most, int(limit_s / max(float(taken), 1e-6))))
    samples = [clock.sample(run, 4 + number, 1) for number in range(count)]
    # A rank that waited for a processor held all others up.
    waits = torch.tensor([sample.waited_s for sample in samples]).to(taken.device)
    dist.all_reduce(waits, op=dist.ReduceOp.MAX)
    together = [replace(one, waited_s=wait) for one, wait in zip(samples, waits.tolist(), strict=True)]
    return summary(together, waits_overlap=True)


def cache_bytes(device: torch.device) -> int:
    """Bytes of the last cache of a device, of a CPU's as the kernel tells them."""
    if device.type == "cuda":
        return int(torch.cuda.get_device_properties(device).L2_cache_size)
    sizes = [path.read_text(encoding="ascii").strip() for path in sorted(CACHE_FOLDER.glob("index*/size"))]
    units = {"K": 2**10, "M": 2**20, "G": 2**30}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1:] in units), default=UNKNOWN_CACHE_BYTES)

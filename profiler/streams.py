"""Times a stream beside others: products, all-reduces, copies to and from a device, some of them in the background."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import torch
import torch.distributed as dist

from profiler.beside import streams_of
from profiler.points import Point, Timing
from profiler.timing import Sample, summary, waited_s

__all__ = ["names_of", "timed_beside"]

SAMPLES = (7, 40)
# Of the one that is timed: width of a square product, bytes of a collective or a copy.
WIDTH = {"cpu": 512, "cuda": 8192}
BYTES = {"cpu": 2**22, "cuda": 2**28}
# The background is given so many times what it takes alone to outlast what is timed.
AHEAD = 6

Start = Callable[[], Callable[[], object]]
"""Sets one piece of a stream's work going; returns what waits for it."""


def names_of(device_kind: str, ranks: int) -> tuple[str, ...]:
    """The streams that a device has."""
    copies = ("host_to_device", "device_to_host") if device_kind == "cuda" else ()
    return ("compute", *(("collective",) if ranks > 1 else ()), *copies)


def timed_beside(point: Point, device: torch.device, limit_s: float) -> Timing:
    """What one piece of a stream takes while the others of the point are at work; every rank must call it."""
    name, others = streams_of(point)
    pieces = {each: _pieces(each, device) for each in (name, *others)}
    for start in pieces.values():
        for _ in range(3):
            start()()
    few, most = SAMPLES
    count = _agreed(max(few, min(most, int(limit_s / max(_once(pieces[name], device), 1e-6)))), device)
    samples = []
    for _ in range(count):
        dist.barrier()
        behind = [pieces[each] for each in others if each != "compute" or device.type == "cuda"]
        beside = _busy_thread(pieces["compute"]) if "compute" in others and device.type == "cpu" else nullcontext()
        with _busy(behind), beside:
            samples.append(_sample(pieces[name], device))
    return summary(samples, waits_overlap=name != "compute")


def _sample(start: Start, device: torch.device) -> Sample:
    before, began = waited_s(), time.perf_counter()
    start()()
    taken = time.perf_counter() - began
    return Sample(taken, waited_s() - before if device.type == "cpu" else 0.0)


def _once(start: Start, device: torch.device) -> float:
    return _sample(start, device).seconds


def _agreed(count: int, device: torch.device) -> int:
    """The fewest that any rank asked for."""
    counts = torch.tensor([count], device=device)
    dist.all_reduce(counts, op=dist.ReduceOp.MIN)
    return int(counts)


def _pieces(name: str, device: torch.device) -> Start:
    """One piece of a stream's work, as it is set going."""
    if name == "compute":
        return _product(device)
    if name == "collective":
        part = torch.zeros(BYTES[device.type] // 2, dtype=torch.bfloat16, device=device)
        return lambda: _waiting(dist.all_reduce(part, async_op=True), device)
    return _copy(name, device)


def _waiting(work: Any, device: torch.device) -> Callable[[], object]:
    def wait() -> None:
        work.wait()
        if device.type == "cuda":
            torch.cuda.current_stream().synchronize()

    return wait


def _product(device: torch.device) -> Start:
    width = WIDTH[device.type]
    left, right = (torch.randn(width, width, device=device).to(torch.bfloat16) for _ in range(2))
    if device.type == "cpu":
        return lambda: (left.mm(right), _done)[1]
    return _on_stream(lambda: left.mm(right), device)


def _copy(name: str, device: torch.device) -> Start:
    on_host = torch.zeros(BYTES["cuda"], dtype=torch.uint8, pin_memory=True)
    on_device = torch.zeros(BYTES["cuda"], dtype=torch.uint8, device=device)
    target, source = (on_device, on_host) if name == "host_to_device" else (on_host, on_device)
    return _on_stream(lambda: target.copy_(source, non_blocking=True), device)


def _on_stream(run: Callable[[], object], device: torch.device) -> Start:
    stream = torch.cuda.Stream(device)

    def start() -> Callable[[], object]:
        with torch.cuda.stream(stream):
            run()
        return stream.synchronize

    return start


def _done() -> None:
    return None


@contextmanager
def _busy(pieces: Sequence[Start]) -> Iterator[None]:
    """Streams that work in the background as long as the block lasts, and to the end of what they were given."""
    waits = [start() for start in pieces for _ in range(AHEAD)]
    yield
    for wait in waits:
        wait()


@contextmanager
def _busy_thread(start: Start) -> Iterator[None]:
    """A thread of this process that computes as long as the block lasts."""
    over = threading.Event()

    def work() -> None:
        while not over.is_set():
            start()()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()

"""The most bytes of tensors that a rank holds at one time, counted allocation by allocation; for devices without an
allocator that counts."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch
from torch.profiler import ProfilerActivity, profile

__all__ = ["peak_of"]

ALLOCATION = "[memory]"


@contextmanager
def peak_of() -> Iterator[Callable[[], int]]:
    """Within the block allocations are counted; after it the function tells the most bytes that were held at one time.

    Memory that was allocated before the block does not count, so a rank must be built within it.
    """
    found: list[int] = []
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as counted:
        yield lambda: found[0]
    events = [event for event in counted.profiler.kineto_results.events() if event.name() == ALLOCATION]
    held = most = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        held += event.nbytes()
        most = max(most, held)
    found.append(most)

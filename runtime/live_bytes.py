"""The most bytes that a CPU rank's tensors take at one time: what the C library has given out, looked at around every
operator."""

import ctypes
import gc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch.utils._python_dispatch import TorchDispatchMode

from runtime.errors import LaunchError

__all__ = ["peak_of"]

# mallinfo2(3): bytes in use of all arenas, and of blocks that have a mapping of their own.
FIELDS = ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")


class _MallocInfo(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in FIELDS]


@contextmanager
def peak_of() -> Iterator[Callable[[], int]]:
    """The function tells the most bytes that were in use at one time since the block began, beyond those in use then.

    A rank that is built within the block is counted whole. Raises LaunchError where the C library does not tell.
    """
    in_use = _in_use()
    gc.collect()
    first = in_use()
    counting = _Counting(in_use)
    with counting:
        yield lambda: counting.most - first


class _Counting(TorchDispatchMode):
    """Looks at the bytes in use before and behind every operator of this thread, the backward's included."""

    def __init__(self, in_use: Callable[[], int]) -> None:
        super().__init__()
        self._in_use = in_use
        self.most = in_use()

    def __torch_dispatch__(self, operator: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = operator(*args, **(kwargs or {}))
        self.most = max(self.most, self._in_use())
        return result


def _in_use() -> Callable[[], int]:
    tell = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if tell is None:
        message = "peak bytes on a CPU need glibc 2.33 or later, whose mallinfo2 tells what is in use"
        raise LaunchError(message)
    tell.restype = _MallocInfo

    def in_use() -> int:
        told = tell()
        return int(told.uordblks) + int(told.hblkhd)

    return in_use

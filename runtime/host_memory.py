"""Memory of a CPU rank: what was freed stays with the process, as a GPU's caching allocator keeps it.

The C library gives large blocks back to the system when they are freed, and every page of the next one costs a fault:
an operator then takes up to four times as long, or not, depending on what was freed before it.
"""

import ctypes
import sys

__all__ = ["keep_freed_memory"]

# mallopt(3)
M_TRIM_THRESHOLD, M_TOP_PAD, M_MMAP_MAX = -1, -2, -4
LARGEST = 2**31 - 1
TOP_PAD_BYTES = 64 * 2**20


def keep_freed_memory() -> None:
    """From now on freed memory stays; nothing happens where the C library is none that can be told so."""
    if not sys.platform.startswith("linux"):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return
    mallopt(M_MMAP_MAX, 0)
    mallopt(M_TRIM_THRESHOLD, LARGEST)
    mallopt(M_TOP_PAD, TOP_PAD_BYTES)

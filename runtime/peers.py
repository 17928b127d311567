"""What ranks of one job can tell each other when one of them fails, through the store that they met at.

A rank that loses another sees no more than a closed connection, or a wait in vain. So a rank that meets a fault leaves
it in the store, and each leaves which process it is: those on the same machine see whether it still runs. The first
that concludes something does so for all.
"""

import os
import socket
import time
from pathlib import Path

from torch.distributed import Store

from runtime.errors import RankFailedError, RuntimeFault
from runtime.finite import in_words

__all__ = ["GRACE_S", "Peers", "plain"]

# When a rank ends, others often fail of it a moment later; the first cause is looked for this long.
GRACE_S = 2.0
POLL_S = 0.05
CAUSE, PROCESS, LOST = "meshplan/cause", "meshplan/process", "meshplan/lost"


class Peers:
    """The ranks of a job, as one of them sees them through their store."""

    def __init__(self, store: Store, rank: int, size: int) -> None:
        self._store, self._rank, self._size = store, rank, size
        store.set(f"{PROCESS}/{rank}", f"{_machine()} {os.getpid()} {_started(os.getpid())}")

    def tell(self, fault: RuntimeFault) -> None:
        """Leaves what this rank met, for those that will lose it."""
        self._conclude(f"rank {self._rank} of {self._size} stopped: {fault}")

    def explained(self, error: Exception) -> RankFailedError:
        """The first cause of what this rank met, which may be that another has failed."""
        own = f"rank {self._rank} of {self._size} failed: {plain(error)}"
        try:
            self._store.set(f"{LOST}/{self._rank}", "")
            return RankFailedError(self._conclude(self._of_others() or f"{own}{self._silent()}"))
        except (RuntimeError, OSError):
            return RankFailedError(f"{own}; the store that rank 0 or torchrun holds for all ranks is gone")

    def _of_others(self) -> str | None:
        """What others left, or that some have ended; none when neither shows within a moment."""
        near = self._processes_here()
        deadline_s = time.monotonic() + GRACE_S
        while time.monotonic() < deadline_s:
            if self._store.check([CAUSE]):
                return bytes(self._store.get(CAUSE)).decode()
            gone = [rank for rank, (pid, started) in near.items() if _started(pid) != started]
            if gone:
                return f"{in_words(gone)} of {self._size} ended; the others cannot go on without"
            time.sleep(POLL_S)
        return None

    def _silent(self) -> str:
        """Ranks without an error, where some others have one: those that the others wait for."""
        silent = [rank for rank in range(self._size) if not self._store.check([f"{LOST}/{rank}"])]
        return f"; no sign of {in_words(silent)}" if 0 < len(silent) < self._size - 1 else ""

    def _conclude(self, cause: str) -> str:
        """What the first rank concluded."""
        return bytes(self._store.compare_set(CAUSE, "", cause)).decode()

    def _processes_here(self) -> dict[int, tuple[int, str]]:
        """The processes of the ranks on this machine, and when each started."""
        found: dict[int, tuple[int, str]] = {}
        for rank, told in enumerate(self._store.multi_get([f"{PROCESS}/{rank}" for rank in range(self._size)])):
            machine, pid, started = bytes(told).decode().split()
            if machine == _machine():
                found[rank] = int(pid), started
        return found


def plain(error: Exception) -> str:
    """What torch says in its first line."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _machine() -> str:
    """This machine and its namespace of processes."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{socket.gethostname()}/{boot}/{os.readlink('/proc/self/ns/pid')}"
    except OSError:
        return f"{socket.gethostname()}/{os.getpid()}"  # no other process can be looked at


def _started(pid: int) -> str:
    """When a process started, in ticks since the machine did: none when it does not run."""
    try:
        behind_name = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return "none"
    return "none" if behind_name[0] in "ZX" else behind_name[19]

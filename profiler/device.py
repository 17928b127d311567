"""What a device and its host are, as their drivers tell it."""

import importlib.metadata
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch

from profiler.errors import DeviceBusyError, NoDeviceError

__all__ = ["Facts", "check", "facts_of", "used_bytes"]

# Of a GPU that nobody else uses little memory is taken: the display's, the driver's.
FREE_SHARE = 0.9
MEMORY, PROCESSOR = Path("/proc/meminfo"), Path("/proc/cpuinfo")


@dataclass(frozen=True)
class Facts:
    """A device."""

    name: str
    """As a catalog would call it."""
    device: str
    driver: str
    memory_bytes: int
    """Of one rank's device."""
    host_memory_bytes: int
    multiprocessors: int
    threads: int | None
    clocks_hz: Mapping[str, float] = field(default_factory=dict)

    @property
    def versions(self) -> dict[str, str]:
        """Other software by name."""
        found = {"python": platform.python_version(), "numpy": importlib.metadata.version("numpy")}
        return found | ({"cuda": torch.version.cuda} if torch.version.cuda else {})

    @property
    def host(self) -> str:
        """The host's name."""
        return socket.gethostname()


def check(kind: str, ranks: int) -> None:
    """Nothing where so many ranks can measure devices of a kind. Raises NoDeviceError, DeviceBusyError.

    It asks the driver's own tool, so that this process does not take hold of a device before it forks.
    """
    if kind == "cpu":
        return
    memory = _gpu_memory()
    if not memory:
        message = "--device cuda: there is no GPU that PyTorch can use here; --device cpu measures the processor"
        raise NoDeviceError(message)
    if len(memory) < ranks:
        message = f"--ranks must be at most {len(memory)}, a rank for each GPU here, got {ranks}"
        raise NoDeviceError(message)
    for index, (free, total) in enumerate(memory[:ranks]):
        if free < FREE_SHARE * total:
            used = f"{(total - free) / 2**20:,.0f} of {total / 2**20:,.0f} MiB are taken"
            message = f"GPU {index} is in use: {used}; end what runs there, or choose others with CUDA_VISIBLE_DEVICES"
            raise DeviceBusyError(message)


def facts_of(kind: str, ranks: int) -> Facts:
    """The device of a kind, and the host, shared by so many ranks."""
    host_bytes = _host_memory_bytes()
    if kind == "cuda":
        return _gpu_facts(host_bytes)
    cores = len(os.sched_getaffinity(0))
    model = _processor()
    return Facts(
        name=f"cpu-{'-'.join(model.lower().split())}-{max(1, cores // ranks)}t",
        device=f"{model}, {cores} cores for {ranks} ranks",
        driver=f"Linux {platform.release()}" if platform.system() == "Linux" else platform.platform(),
        memory_bytes=host_bytes // ranks,
        host_memory_bytes=host_bytes,
        multiprocessors=max(1, cores // ranks),
        threads=max(1, cores // ranks),
        clocks_hz=_processor_clock(),
    )


def _gpu_facts(host_bytes: int) -> Facts:
    rows = _asked("name,driver_version,clocks.sm,clocks.mem")
    name, driver, core, memory = rows[0] if rows else ("GPU", "unknown", "", "")
    total = _gpu_memory()[0][1]
    clocks = {"core": core, "memory": memory}
    return Facts(
        name="-".join(name.lower().removeprefix("nvidia").split()),
        device=name,
        driver=driver,
        memory_bytes=total,
        host_memory_bytes=host_bytes,
        multiprocessors=1,  # the catalog's, where it knows the device: asking would take hold of it before ranks fork
        threads=None,
        clocks_hz={key: float(value) * 1e6 for key, value in clocks.items() if value.isdigit()},
    )


def used_bytes() -> int:
    """Memory that is taken of the first GPU, by whomever."""
    memory = _gpu_memory()
    return memory[0][1] - memory[0][0] if memory else 0


def _gpu_memory() -> list[tuple[int, int]]:
    """Free and total bytes of every GPU that may be used."""
    if not torch.backends.cuda.is_built() or torch.cuda.device_count() == 0:
        return []
    rows = _asked("memory.free,memory.total")
    return [(int(free) * 2**20, int(total) * 2**20) for free, total in rows]


def _asked(fields: str) -> list[list[str]]:
    """What the driver's tool says of each GPU, a row each; nothing where there is no such tool."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    command = [tool, f"--query-gpu={fields}", "--format=csv,noheader,nounits"]
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command += [f"--id={visible}"] if visible else []
    try:
        told = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    return [[part.strip() for part in line.split(",")] for line in told.splitlines() if line.strip()]


def _host_memory_bytes() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _processor() -> str:
    try:
        lines = PROCESSOR.read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.machine()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())


def _processor_clock() -> dict[str, float]:
    """The clock that the kernel tells, of the first core."""
    try:
        lines = PROCESSOR.read_text(encoding="utf-8").splitlines()
        told = next(float(line.split(":", 1)[1]) for line in lines if line.startswith("cpu MHz"))
    except (OSError, StopIteration, ValueError):
        return {}
    return {"core": told * 1e6}

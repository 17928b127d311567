"""What a step takes: time and memory of the slowest and fullest rank of every stage."""

import time
from dataclasses import dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from runtime.rank import Rank

__all__ = ["Meter", "StepMeasure"]

RESIDENT_PEAK = "VmHWM:"


@dataclass(frozen=True)
class StepMeasure:
    """One step of the job, by pipeline rank."""

    step_time_s: tuple[float, ...]
    peak_memory_bytes: tuple[int, ...]
    """Allocated on a GPU; on a CPU what the process held in memory at most."""


class Meter:
    """Measures steps: `start` before and `stop` behind each, on every rank."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._start_s = 0.0

    def start(self) -> None:
        """Begins a step."""
        if self._rank.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._rank.device)
        else:
            _forget_resident_peak()
        self._start_s = time.perf_counter()

    def stop(self) -> StepMeasure:
        """What the step took, the same on every rank."""
        on_gpu = self._rank.device.type == "cuda"
        if on_gpu:
            torch.cuda.synchronize(self._rank.device)
        own_s = time.perf_counter() - self._start_s
        own_bytes = torch.cuda.max_memory_allocated(self._rank.device) if on_gpu else _resident_peak_bytes()
        stages = torch.zeros(2, self._rank.job.layout.pp, dtype=torch.float64, device=self._rank.device)
        stages[:, self._rank.groups.pipeline_rank] = torch.tensor([own_s, own_bytes], dtype=torch.float64)
        dist.all_reduce(stages, op=dist.ReduceOp.MAX)
        times, peaks = stages.tolist()
        return StepMeasure(tuple(times), tuple(int(peak) for peak in peaks))


def _resident_peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text(encoding="ascii").splitlines():
        if line.startswith(RESIDENT_PEAK):
            return int(line.split()[1]) * 1024
    return 0


def _forget_resident_peak() -> None:
    """Lets the peak begin anew (proc(5), clear_refs)."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")

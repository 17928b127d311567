"""What a row measured: step seconds and peak bytes, whatever the source printed them as."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from cost_models.flops import model_flops
from planner.evaluate.answers import GIB, Answer
from planner.evaluate.cells import Cells
from planner.evaluate.errors import RunError

__all__ = ["Measured", "measured"]


@dataclass(frozen=True)
class Measured:
    """One measurement. None where the row has none; `counter` says which bytes the source counted."""

    step_time_s: float | None
    peak_bytes: float | None
    out_of_memory: bool
    counter: str


def measured(row: Mapping[str, Any], answer: Answer) -> Measured:
    """What the row of an answer with a prediction measured."""
    cells = Cells(row)
    try:
        peak = cells.number("peak_mem_gib")
        step = _step_s(cells, answer)
    except RunError:
        peak, step = None, None
    out_of_memory = cells.text("oom").lower() in ("1", "true", "yes")
    return Measured(step, peak * GIB if peak else None, out_of_memory, _counter(cells))


def _step_s(cells: Cells, answer: Answer) -> float | None:
    """Seconds of a step: printed, or from tokens a second, or from the model FLOPs that a printed MFU stands for."""
    run = answer.run
    assert run is not None
    if step := cells.number("step_time_s"):
        return step
    if rate := cells.number("tokens_per_s_per_gpu"):
        return run.workload.tokens / rate / run.cluster.gpus
    mfu = cells.number("mfu")
    if mfu and not cells.says("hardware flops"):
        flops = model_flops(run.model, run.workload, causal=False)
        return flops / (mfu * run.cluster.gpu.peak_flops[run.workload.precision] * run.cluster.gpus)
    return None


def _counter(cells: Cells) -> str:
    """Which bytes the source counted: allocated, reserved by the allocator, or all that the device shows."""
    if cells.says("nvidia-smi"):
        return "device"
    return "reserved" if "titan" in cells.text("framework").lower() else "allocated"

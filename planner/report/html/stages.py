"""The stages of a plan on a page: which layers each holds, its times, and its memory by cause against capacity."""

from collections.abc import Mapping
from dataclasses import dataclass

from planner.document import PlanDocument, Stage
from planner.report.axes import round_values
from planner.report.html.fields import Fields, Number
from planner.report.quantities import GIB, digits, gib, percent, short_offload, short_recompute, words
from planner.report.tables import MEMORY_GROUPS

__all__ = [
    "BEYOND",
    "GROUP_NAMES",
    "Layers",
    "MemoryChart",
    "Segment",
    "StageRow",
    "memory_chart",
    "segments",
    "stage_rows",
]

GROUP_NAMES = {
    "params": "weights",
    "grads": "gradients",
    "optim": "optimizer states",
    "activ": "activations",
    "other": "overheads",
}
# Causes of one group have its colour in these strengths, the largest first.
STRENGTHS = (1.0, 0.72, 0.5, 0.36, 0.26)
# Room that a bar leaves beyond what is full, as a share of the capacity.
BEYOND = 1.04


@dataclass(frozen=True)
class Segment:
    """A part of a bar, in percent of its width: a cause of memory, or a run of layers."""

    left: float
    wide: float
    kind: str
    strength: float
    tip: str


@dataclass(frozen=True)
class Layers:
    """A run of consecutive layers, in percent of the model."""

    left: float
    wide: float
    tip: str


@dataclass(frozen=True)
class StageRow:
    """A stage as a row of tables."""

    rank: int
    held: str
    layers: Number
    runs: tuple[Layers, ...]
    zero_stage: Number
    recompute: str
    offload: str
    forward: Number
    backward: tuple[Number, Number]
    segments: tuple[Segment, ...]
    causes: tuple[Number, ...]
    device: Number
    share: str


@dataclass(frozen=True)
class MemoryChart:
    """The bars of all stages on one scale: where the capacity is, in percent of their width, and the causes shown."""

    capacity: Number
    capacity_at: float
    ticks: tuple[tuple[float, str], ...]
    causes: tuple[tuple[str, str], ...]
    """(name, group) of the causes that some stage has."""
    groups: tuple[tuple[str, str], ...]
    """(group, name) of the groups that some stage has."""


def memory_chart(document: PlanDocument, fields: Fields) -> MemoryChart:
    """The scale of the bars."""
    causes = _causes(document)
    present = {_group(cause) for cause in causes}
    whole = _whole_bytes(document)
    capacity = fields("predicted.peak_memory_bytes.capacity", gib)
    return MemoryChart(
        capacity=capacity,
        capacity_at=100 * document.predicted.peak_memory_bytes.capacity / whole,
        ticks=tuple((100 * at * GIB / whole, f"{at:g}") for at in round_values(whole / GIB, most=6)),
        causes=tuple((words(cause), _group(cause)) for cause in causes),
        groups=tuple((group, name) for group, name in GROUP_NAMES.items() if group in present),
    )


def stage_rows(document: PlanDocument, fields: Fields) -> list[StageRow]:
    """The stages, in order."""
    return [_row(document, fields, rank, stage) for rank, stage in enumerate(document.stages)]


def _row(document: PlanDocument, fields: Fields, rank: int, stage: Stage) -> StageRow:
    def milliseconds(time_s: float) -> str:
        return digits(1e3 * time_s)

    where = f"stages[{rank}]"
    ends = ["embedding"] * stage.has_embedding + ["head"] * stage.has_head
    capacity = document.predicted.peak_memory_bytes.capacity
    return StageRow(
        rank=rank,
        held=" + ".join(ends),
        layers=fields(f"{where}.layers"),
        runs=_runs(document, stage),
        zero_stage=fields(f"{where}.zero_stage"),
        recompute=short_recompute(stage.recompute),
        offload=short_offload(stage.offload),
        forward=fields(f"{where}.predicted.forward_s", milliseconds),
        backward=(
            fields(f"{where}.predicted.input_grad_s", milliseconds),
            fields(f"{where}.predicted.weight_grad_s", milliseconds),
        ),
        segments=segments(dict(stage.predicted.memory_bytes.items()), _whole_bytes(document)),
        causes=tuple(fields(f"{where}.predicted.memory_bytes.{cause}", gib) for cause in _causes(document)),
        device=fields(f"{where}.predicted.device_bytes", gib),
        share=percent(stage.predicted.device_bytes / capacity, 0) if capacity else "",
    )


def _runs(document: PlanDocument, stage: Stage) -> tuple[Layers, ...]:
    layers = document.model.layers
    return tuple(
        Layers(
            100 * chunk.first_layer / layers,
            100 * chunk.layers / layers,
            f"layers {chunk.first_layer} to {chunk.first_layer + chunk.layers - 1}",
        )
        for chunk in stage.chunks
        if chunk.layers
    )


def segments(causes: Mapping[str, float], whole_bytes: float) -> tuple[Segment, ...]:
    """Bytes by cause as parts of a bar, side by side by group, so that equal colours touch."""
    left, found, total = 0.0, [], sum(causes.values())
    for group, names in MEMORY_GROUPS.items():
        for strength, cause in zip(STRENGTHS, names, strict=False):
            amount = causes[cause]
            wide = 100 * amount / whole_bytes
            if amount:
                tip = f"{words(cause)}: {gib(amount)} GiB, {percent(amount / total)}"
                found.append(Segment(left, wide, group, strength, tip))
            left += wide
    return tuple(found)


def _whole_bytes(document: PlanDocument) -> float:
    """What the width of a bar stands for: more than the capacity, and than the fullest stage with its band."""
    peak = document.predicted.peak_memory_bytes
    return BEYOND * max(peak.capacity, peak.high)


def _causes(document: PlanDocument) -> list[str]:
    """Causes that some stage has, by group."""
    stages = [stage.predicted.memory_bytes for stage in document.stages]
    order = [cause for causes in MEMORY_GROUPS.values() for cause in causes]
    return [cause for cause in order if any(getattr(stage, cause) for stage in stages)]


def _group(cause: str) -> str:
    return next(group for group, causes in MEMORY_GROUPS.items() if cause in causes)

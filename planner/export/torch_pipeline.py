"""What launchers on torch.distributed.pipelining share: names of schedules, and stages as lists of modules."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from planner.document import Configuration
from planner.errors import LauncherFileError
from planner.export.choice import chunk_layers

__all__ = ["SCHEDULE_NAMES", "ModuleNames", "stages_read"]

SCHEDULE_NAMES = {
    "1f1b": "1F1B",
    "interleaved": "Interleaved1F1B",
    "gpipe": "GPipe",
    "breadth-first": "LoopedBFS",
    "zb-h1": "InterleavedZeroBubble",  # with one chunk a rank
    "zb-v": "ZBVZeroBubble",
    "dualpipe-v": "DualPipeV",
}


@dataclass(frozen=True)
class ModuleNames:
    """What a framework calls the parts of a model: of the layers what stands before their number."""

    embedding: str
    layer: str
    norm: str
    head: str

    def lists(self, configuration: Configuration) -> list[list[str]]:
        """The modules of every virtual stage, in the order of the layers."""
        counts, first = chunk_layers(configuration), 0
        stages = []
        for count in counts:
            stages.append([f"{self.layer}{index}" for index in range(first, first + count)])
            first += count
        stages[0].insert(0, self.embedding)
        stages[-1] += [self.norm, self.head]
        return stages

    def layers(self, stages: Sequence[object]) -> list[int]:
        """Layers of every virtual stage. Raises LauncherFileError unless the lists hold a model in order."""
        counts: list[int] = []
        names: list[str] = []
        for stage in stages:
            if not isinstance(stage, list) or not all(isinstance(name, str) for name in stage):
                message = f"modules of a stage must be a list of names, got {stage!r}"
                raise LauncherFileError(message)
            counts.append(sum(name.startswith(self.layer) for name in stage))
            names += stage
        wanted = [self.embedding, *(f"{self.layer}{index}" for index in range(sum(counts))), self.norm, self.head]
        if names != wanted:
            odd = next((name for name, other in zip(names, wanted, strict=False) if name != other), "their number")
            message = f"modules of the stages must be those of the model in order, got {odd!r}"
            raise LauncherFileError(message)
        return counts


def stages_read(
    modules: ModuleNames, stages: Sequence[object], schedule: str, local_batch: int, micro_batch_size: int, pp: int
) -> dict[str, Any]:
    """What `configuration_of` takes of a pipeline whose ranks work on `local_batch` sequences a step.

    `stages` are the lists of modules and `schedule` is torch's name. Raises LauncherFileError.
    """
    name, layers = _schedule_of(schedule), modules.layers(stages)
    return {
        "layers": layers,
        "vpp": len(layers) // pp,
        "schedule": name,
        "group_size": _groups_of(name, pp, local_batch // max(micro_batch_size, 1)),
        "micro_batch_size": micro_batch_size,
    }


def _schedule_of(name: str) -> str:
    """Our name of a schedule of torch.distributed.pipelining. Raises LauncherFileError."""
    ours = {theirs.lower(): our for our, theirs in SCHEDULE_NAMES.items()}
    if name.lower() not in ours:
        message = f"the pipeline schedule must be one of {', '.join(SCHEDULE_NAMES.values())}, got {name!r}"
        raise LauncherFileError(message)
    return ours[name.lower()]


def _groups_of(schedule: str, pp: int, num_microbatches: int) -> int:
    """Micro-batches in a row of an interleaved schedule: as many rounds as pp fits into their number; 0 for others."""
    if schedule != "interleaved":
        return 0
    return num_microbatches // max(1, num_microbatches // pp)

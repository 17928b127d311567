"""A plan under the mirror: seconds of a step and peaks of its stages."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.oracles.mist.gpt import Gpt
from tests.oracles.mist.hardware import Card
from tests.oracles.mist.stage import Options, Position, StageModel


@dataclass(frozen=True)
class Stage:
    """What one stage of a plan holds and keeps."""

    layers: int
    recomputed: int = 0
    zero: int = 1
    offload: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    """Shares of the weights, gradients, optimizer states and activations on the host."""


@dataclass(frozen=True)
class Analysis:
    """Mist's answer for one plan."""

    stable_s: list[float]
    delta_s: list[float]
    forward_mib: list[float]
    backward_mib: list[float]
    fits: list[bool]
    micro_batches: int

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return step_seconds(self.stable_s, self.delta_s, self.micro_batches)

    @property
    def peaks_mib(self) -> list[float]:
        """The greater peak of each stage."""
        return [max(pair) for pair in zip(self.forward_mib, self.backward_mib, strict=True)]


def step_seconds(stable_s: Sequence[float], delta_s: Sequence[float], micro_batches: int) -> float:
    """Seconds of a step: 1F1B, with what the edges take more behind the warm-up of the stages in front."""
    exposed = max(delta - sum(stable_s[:stage]) for stage, delta in enumerate(delta_s))
    return (micro_batches - 1) * max(stable_s) + sum(stable_s) + exposed


def positions(stages: int, micro_batches: int) -> list[Position]:
    """Places of the stages of a pipeline under 1F1B."""
    return [
        Position(stage == 0, stage == stages - 1, min(stages - stage, micro_batches) - 1) for stage in range(stages)
    ]


def analyse(model: Gpt, card: Card, *, gpus: int, batch: int, micro_batches: int, stages: Sequence[Stage]) -> Analysis:
    """Mist's answer for stages on equal shares of the GPUs of one node, each with `batch` sequences a micro-batch."""
    shares = np.array([stage.offload for stage in stages])
    options = Options(np.array([stage.zero for stage in stages]), *shares.T)
    found = []
    for index, (stage, position) in enumerate(zip(stages, positions(len(stages), micro_batches), strict=True)):
        one = options.take(np.array([index]))
        costs = StageModel(model, card, one, 1, gpus // len(stages), batch, micro_batches)
        held = np.array([stage.layers]), np.array([stage.recomputed])
        values = (*costs.seconds(*held, position), *costs.peaks_mib(*held, position), costs.fits(*held, position))
        found.append([value.item() for value in values])
    columns = [list(column) for column in zip(*found, strict=True)]
    return Analysis(columns[0], columns[1], columns[2], columns[3], columns[4], micro_batches)


def stages_of(run: dict[str, Any]) -> list[Stage]:
    """The stages of a run of the artifact."""
    shares = ("weights", "gradients", "optimizer", "activations")
    return [
        Stage(
            stage["layers"],
            stage["recomputed"],
            1 + stage["shard_gradients"] + stage["shard_weights"],
            tuple(stage[share] for share in shares),
        )
        for stage in run["stages"]
    ]

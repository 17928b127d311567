"""What all stages of a launcher's plan have in common, read off a configuration, and a configuration built of it."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cost_models.schedules import placement
from planner.document import Chunk, Configuration, Offload, Recompute, RecomputeModule, StageChoice, virtual_stages
from planner.launchers import common_count

__all__ = ["EVERY_LAYER", "Choice", "chunk_layers", "is_even", "stages_of", "states_on_host"]

EVERY_LAYER = 2**31
"""More layers than a chunk has: as a number of recomputed layers, all of them."""


@dataclass(frozen=True)
class Choice:
    """How stages keep within memory, one value for the whole job.

    `recompute_per_chunk` is the number of layers of every chunk, from its first on, that recompute; a chunk with fewer
    recomputes all of its own.
    """

    zero_stage: int = 0
    reshard_after_forward: bool = False
    recompute: tuple[RecomputeModule, ...] = ()
    recompute_per_chunk: int = EVERY_LAYER
    offload: Offload = Offload()

    @classmethod
    def of(cls, configuration: Configuration) -> "Choice":
        """The choice that all stages make; a launcher's rules say before whether there is one."""
        stages = configuration.stages
        modules = next((stage.recompute.set for stage in stages if stage.recompute.set), ())
        every = all(stage.recompute.layers == stage.layers for stage in stages)
        return cls(
            zero_stage=stages[0].zero_stage,
            reshard_after_forward=stages[0].reshard_after_forward,
            recompute=modules,
            recompute_per_chunk=EVERY_LAYER if every or not modules else common_count(stages) or EVERY_LAYER,
            offload=stages[0].offload,
        )


def states_on_host(on_host: bool, *, activations: bool = False) -> Offload:
    """Weights, gradients and optimizer states on the host, or none of them."""
    share = float(on_host)
    return Offload(weights=share, gradients=share, optimizer=share, activations=float(activations))


def chunk_layers(configuration: Configuration) -> tuple[int, ...]:
    """Layers of every chunk, in the order of the layers."""
    return tuple(chunk.layers for chunk in virtual_stages(configuration.stages, configuration.parallelism.schedule))


def is_even(configuration: Configuration) -> bool:
    """Whether all chunks have equally many layers."""
    return len(set(chunk_layers(configuration))) == 1


def stages_of(schedule: str, pp: int, vpp: int, layers: Sequence[int], choice: Choice) -> tuple[StageChoice, ...]:
    """The stages of `pp` ranks that hold so many layers, int[pp * vpp] in the order of the layers, and choose alike."""
    place = placement(schedule, pp, vpp)
    counts, first = np.empty((pp, vpp), dtype=np.int64), np.empty((pp, vpp), dtype=np.int64)
    counts[place.rank, place.chunk] = layers
    first[place.rank, place.chunk] = np.cumsum(layers) - layers
    again = np.minimum(counts, choice.recompute_per_chunk if choice.recompute else 0).sum(axis=1)
    return tuple(
        StageChoice(
            chunks=tuple(
                Chunk(first_layer=int(start), layers=int(count))
                for start, count in zip(first[rank], counts[rank], strict=True)
            ),
            layers=int(counts[rank].sum()),
            has_embedding=rank == int(place.rank[0]),
            has_head=rank == int(place.rank[-1]),
            zero_stage=choice.zero_stage,
            reshard_after_forward=choice.reshard_after_forward,
            recompute=Recompute(set=choice.recompute if again[rank] else (), layers=int(again[rank])),
            offload=choice.offload,
        )
        for rank in range(pp)
    )

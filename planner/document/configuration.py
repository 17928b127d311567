"""What a plan decides, without what it costs; and what must agree across its parts."""

from collections.abc import Iterator, Sequence
from typing import Self

from pydantic import Field, model_validator

from cost_models.schedules import V_SHAPED, placement
from cost_models.schedules.table import Placement
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document.parallelism import Parallelism
from planner.document.record import Record
from planner.document.stage import Chunk, StageChoice


class Configuration(Record):
    """A job and the choices of a plan for it: all that a launcher can be told."""

    model: ModelSpec
    cluster: ClusterSpec
    workload: WorkloadSpec
    recipe: FrameworkRecipe
    parallelism: Parallelism
    stages: tuple[StageChoice, ...] = Field(min_length=1, description="one for each pipeline rank")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_stages(self.model, self.parallelism, self.stages)
        check_batch_and_gpus(self.cluster, self.workload, self.parallelism)
        return self


def virtual_stages(stages: Sequence[StageChoice], schedule: str) -> tuple[Chunk, ...]:
    """The chunks in the order of the layers, as the schedule places them. Every stage has the same number."""
    place = placement(schedule, len(stages), len(stages[0].chunks))
    return tuple(stages[rank].chunks[chunk] for rank, chunk in _places(place))


def check_stages(model: ModelSpec, layout: Parallelism, stages: Sequence[StageChoice]) -> None:
    """Nothing when the stages are those of the layout and hold the model's layers in order; ValueError otherwise."""
    require(len(stages) == layout.pp, f"stages must have pp = {layout.pp} entries, got {len(stages)}")
    is_v = layout.schedule in V_SHAPED
    require(layout.vpp == 2 or not is_v, f"vpp must be 2 for {layout.schedule}, got {layout.vpp}")
    place, ends = placement(layout.schedule, layout.pp, layout.vpp), "first" if is_v else "last"
    for rank, stage in enumerate(stages):
        counts = f"stages[{rank}].chunks must have vpp = {layout.vpp} entries, got {len(stage.chunks)}"
        require(len(stage.chunks) == layout.vpp, counts)
        first, last = rank == 0, rank == place.rank[-1]
        require(stage.has_embedding == first, f"stages[{rank}].has_embedding must be {first}: the first stage has it")
        require(stage.has_head == last, f"stages[{rank}].has_head must be {last}: the {ends} stage has it")
    expected = 0
    for (rank, index), chunk in zip(_places(place), virtual_stages(stages, layout.schedule), strict=True):
        where = f"stages[{rank}].chunks[{index}].first_layer"
        require(chunk.first_layer == expected, f"{where} must be {expected}, got {chunk.first_layer}")
        expected += chunk.layers
    layers = model.layers
    require(expected == layers, f"the layers of all stages must add up to model.layers = {layers}, got {expected}")


def check_batch_and_gpus(cluster: ClusterSpec, workload: WorkloadSpec, layout: Parallelism) -> None:
    """Nothing when the layout makes the batch of the workload on the GPUs of the cluster; ValueError otherwise."""
    batch = workload.global_batch
    product = "micro_batch_size * num_microbatches * dp"
    require(
        layout.global_batch == batch, f"{product} must be workload.global_batch = {batch}, got {layout.global_batch}"
    )
    gpus, total = cluster.gpus, layout.gpus_used + layout.gpus_idle
    require(total == gpus, f"gpus_used + gpus_idle must be the cluster's {gpus} GPUs, got {total}")


def require(holds: bool, message: str) -> None:
    """Nothing where something holds; ValueError otherwise."""
    if not holds:
        raise ValueError(message)


def _places(place: Placement) -> Iterator[tuple[int, int]]:
    return zip(place.rank.tolist(), place.chunk.tolist(), strict=True)

"""The plan document itself, and what must agree across its parts."""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import Field, model_validator

from cost_models.schedules import V_SHAPED, placement
from cost_models.schedules.table import Placement
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document.parallelism import Parallelism
from planner.document.prediction import Alternative, Certificate, LauncherAnswer, Prediction, RecipeVariant
from planner.document.record import ByKey, Record, agree
from planner.document.stage import Chunk, Stage

SCHEMA_VERSION = 1


class Digests(Record):
    """Fingerprints of the inputs that the document does not hold in full."""

    profile: str = Field(description="hex digest of the hardware profile that timed the operators")
    catalog: str = Field(description="hex digest of the catalog")


class PlanDocument(Record):
    """A plan, everything it was made from, and what it costs."""

    schema_version: Literal[1] = 1
    tool_version: str = Field(description="version of the tool that wrote it")
    digests: Digests
    model: ModelSpec
    cluster: ClusterSpec
    workload: WorkloadSpec
    recipe: FrameworkRecipe
    parallelism: Parallelism
    stages: tuple[Stage, ...] = Field(min_length=1, description="one for each pipeline rank")
    predicted: Prediction
    certificate: Certificate
    assumptions: tuple[str, ...] = Field(default=(), description="defaults and readings, one sentence each")
    alternatives: tuple[Alternative, ...] = Field(default=(), description="best plans of other layouts, fastest first")
    recipes: tuple[RecipeVariant, ...] = Field(default=(), description="variants of the recipe that were searched")
    launchers: ByKey[LauncherAnswer] = Field(default_factory=dict)
    env: ByKey[str] = Field(default_factory=dict, description="environment variables that the plan relies on")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        _check_stages(self)
        _check_batch_and_gpus(self)
        _check_costs(self)
        return self


def virtual_stages(stages: tuple[Stage, ...], schedule: str) -> tuple[Chunk, ...]:
    """The chunks in the order of the layers, as the schedule places them. Every stage has the same number."""
    place = placement(schedule, len(stages), len(stages[0].chunks))
    return tuple(stages[rank].chunks[chunk] for rank, chunk in _places(place))


def _places(place: Placement) -> Iterator[tuple[int, int]]:
    return zip(place.rank.tolist(), place.chunk.tolist(), strict=True)


def _require(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


def _check_stages(document: PlanDocument) -> None:
    stages, layout = document.stages, document.parallelism
    _require(len(stages) == layout.pp, f"stages must have pp = {layout.pp} entries, got {len(stages)}")
    is_v = layout.schedule in V_SHAPED
    _require(layout.vpp == 2 or not is_v, f"vpp must be 2 for {layout.schedule}, got {layout.vpp}")
    place, ends = placement(layout.schedule, layout.pp, layout.vpp), "first" if is_v else "last"
    for rank, stage in enumerate(stages):
        counts = f"stages[{rank}].chunks must have vpp = {layout.vpp} entries, got {len(stage.chunks)}"
        _require(len(stage.chunks) == layout.vpp, counts)
        first, last = rank == 0, rank == place.rank[-1]
        _require(stage.has_embedding == first, f"stages[{rank}].has_embedding must be {first}: the first stage has it")
        _require(stage.has_head == last, f"stages[{rank}].has_head must be {last}: the {ends} stage has it")
    expected = 0
    for (rank, index), chunk in zip(_places(place), virtual_stages(stages, layout.schedule), strict=True):
        where = f"stages[{rank}].chunks[{index}].first_layer"
        _require(chunk.first_layer == expected, f"{where} must be {expected}, got {chunk.first_layer}")
        expected += chunk.layers
    layers = document.model.layers
    _require(expected == layers, f"the layers of all stages must add up to model.layers = {layers}, got {expected}")


def _check_batch_and_gpus(document: PlanDocument) -> None:
    layout = document.parallelism
    batch = document.workload.global_batch
    product = "micro_batch_size * num_microbatches * dp"
    _require(
        layout.global_batch == batch, f"{product} must be workload.global_batch = {batch}, got {layout.global_batch}"
    )
    gpus, total = document.cluster.gpus, layout.gpus_used + layout.gpus_idle
    _require(total == gpus, f"gpus_used + gpus_idle must be the cluster's {gpus} GPUs, got {total}")


def _check_costs(document: PlanDocument) -> None:
    step_s, objective_s = document.predicted.step_time_s, document.certificate.objective_s
    record = f"certificate.objective_s must be predicted.step_time_s = {step_s:.9g}, got {objective_s:.9g}"
    _require(agree(objective_s, step_s), record)
    device = document.predicted.peak_memory_bytes.device
    fullest = max(stage.predicted.device_bytes for stage in document.stages)
    _require(
        agree(device, fullest), f"the peak of the device must be its fullest stage's {fullest:.9g}, got {device:.9g}"
    )

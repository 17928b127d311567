"""The plan document itself, and what must agree across its parts."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.kernel_tables import is_none
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document.configuration import Configuration, check_batch_and_gpus, check_stages, require
from planner.document.parallelism import Parallelism
from planner.document.prediction import (
    Alternative,
    Certificate,
    HeterogeneousPlan,
    LauncherAnswer,
    Prediction,
    RecipeVariant,
)
from planner.document.record import ByKey, Record, agree
from planner.document.stage import Stage

SCHEMA_VERSION = 1


class Digests(Record):
    """Fingerprints of the inputs that the document does not hold in full."""

    profile: str = Field(description="hex digest of the hardware profile that timed the operators")
    catalog: str = Field(description="hex digest of the catalog")
    profile_name: str | None = Field(
        default=None,
        description="name of the profile where it was measured: its file is needed to cost the plan anew",
        exclude_if=is_none,
    )


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
    heterogeneous: HeterogeneousPlan | None = Field(
        default=None, description="a faster pipeline of stages of different sizes, where that was searched and found"
    )
    launchers: ByKey[LauncherAnswer] = Field(default_factory=dict)
    env: ByKey[str] = Field(default_factory=dict, description="environment variables that the plan relies on")

    @model_validator(mode="after")
    def _parts_agree(self) -> Self:
        check_stages(self.model, self.parallelism, self.stages)
        check_batch_and_gpus(self.cluster, self.workload, self.parallelism)
        _check_costs(self)
        return self

    @property
    def configuration(self) -> Configuration:
        """What the plan decides, without what it costs."""
        given = {name: getattr(self, name) for name in Configuration.model_fields}
        return Configuration(**{**given, "stages": tuple(stage.choice for stage in self.stages)})


def _check_costs(document: PlanDocument) -> None:
    step_s, objective_s = document.predicted.step_time_s, document.certificate.objective_s
    record = f"certificate.objective_s must be predicted.step_time_s = {step_s:.9g}, got {objective_s:.9g}"
    require(agree(objective_s, step_s), record)
    device = document.predicted.peak_memory_bytes.device
    fullest = max(stage.predicted.device_bytes for stage in document.stages)
    require(
        agree(device, fullest), f"the peak of the device must be its fullest stage's {fullest:.9g}, got {device:.9g}"
    )

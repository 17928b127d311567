"""Clusters of several kinds of nodes: a file that names a GPU or a preset, and how many GPUs of it there are."""

from typing import ClassVar, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Name, Spec
from cost_models.specs.cluster import GpuCount

__all__ = ["MixedCluster", "NodeGroup"]


class NodeGroup(Spec):
    """Nodes of one kind."""

    label: ClassVar[str] = "group"

    gpus: GpuCount = Field(description="GPUs of the group")
    gpu: Name | None = Field(None, description="GPU, in the nodes it is usually sold in; or else a cluster")
    cluster: Name | None = Field(None, description="cluster preset or file of a homogeneous cluster")

    @model_validator(mode="after")
    def _names_its_nodes(self) -> Self:
        if (self.gpu is None) == (self.cluster is None):
            message = f"a group must name a gpu or a cluster, one of them, got {self.gpu} and {self.cluster}"
            raise ValueError(message)
        return self


class MixedCluster(Spec):
    """Several groups of nodes."""

    label: ClassVar[str] = "cluster"

    name: Name = Field(description="name shown in reports")
    groups: tuple[NodeGroup, ...] = Field(min_length=1, description="kinds of nodes")

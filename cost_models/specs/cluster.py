"""GPUs, nodes and the network tiers between them."""

from itertools import pairwise
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Name, NonNegativeFloat, PositiveFloat, PositiveInt, Sources, Spec
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.units import MAX_GPUS

GpuCount = Annotated[PositiveInt, Field(le=MAX_GPUS)]


class NetworkTier(Spec):
    """One level of the network: what a GPU can send to others of its domain that no inner tier reaches."""

    label: ClassVar[str] = "tier"

    name: Name = Field(description="name shown in reports")
    kind: Literal["nvlink", "mesh", "pcie", "network"] = Field(
        description="what the links are; picks the link fraction. mesh: nvlink straight from each GPU to each other"
    )
    domain_gpus: GpuCount | None = Field(None, description="GPUs that reach each other through this tier; None = all")
    link_bandwidth_bytes_per_s: PositiveFloat = Field(description="bytes/s of one link in one direction, line rate")
    links_per_gpu: PositiveFloat = Field(description="links of a GPU; 0.125 when eight GPUs share one NIC")
    latency_s: NonNegativeFloat = Field(description="latency of one hop, s")
    oversubscription: Annotated[float, Field(strict=True, ge=1, allow_inf_nan=False)] = Field(
        1.0, description="by how much the links of this tier are outnumbered by those below; 1 = full bisection"
    )

    @property
    def bandwidth_bytes_per_s(self) -> float:
        """Bytes/s of one GPU in one direction when every GPU of the domain sends."""
        return self.link_bandwidth_bytes_per_s * self.links_per_gpu / self.oversubscription

    @property
    def links(self) -> str:
        """What profiles call links of this kind: a mesh is made of the same links as a switched domain."""
        return "nvlink" if self.kind == "mesh" else self.kind

    @model_validator(mode="after")
    def _mesh_has_an_end(self) -> Self:
        if self.kind == "mesh" and (self.domain_gpus is None or self.domain_gpus < 2):
            message = f"domain_gpus must be >= 2 where kind is mesh, got {self.domain_gpus}"
            raise ValueError(message)
        return self


class ClusterSpec(Spec):
    """A homogeneous cluster: GPUs, nodes, and network tiers from the innermost outwards."""

    label: ClassVar[str] = "cluster"

    name: Name = Field(description="name shown in reports")
    gpu: GpuSpec = Field(description="the GPU in every slot")
    gpus: GpuCount = Field(description="GPUs to plan for")
    gpus_per_node: GpuCount = Field(description="GPUs that share a host; the NVLink domain is a tier, not this")
    tiers: tuple[NetworkTier, ...] = Field(min_length=1, description="network tiers, innermost first")
    host_memory_bytes: PositiveInt = Field(description="memory of one host, bytes")
    host_memory_bandwidth_bytes_per_s: PositiveFloat = Field(
        200e9, description="what the processors of one host reach when they step an optimizer, bytes/s"
    )
    host_to_device_bandwidth_bytes_per_s: PositiveFloat = Field(
        description="pinned copy of one GPU in one direction while all GPUs of the node copy, bytes/s"
    )
    sources: Sources = Field(
        default_factory=dict, description="the source of every figure, by field", validate_default=True
    )

    @model_validator(mode="after")
    def _tiers_nest(self) -> Self:
        domains = [tier.domain_gpus for tier in self.tiers]
        for index, (inner, outer) in enumerate(pairwise(domains)):
            if inner is None:
                message = f"tiers[{index}].domain_gpus must be a number: only the last tier reaches all GPUs, got none"
                raise ValueError(message)
            if outer is not None and (outer <= inner or outer % inner):
                message = f"tiers[{index + 1}].domain_gpus must be a larger multiple of {inner}, got {outer}"
                raise ValueError(message)
        last = domains[-1]
        if last is not None and last < self.gpus:
            message = f"gpus must be <= {last}, the domain of the last tier '{self.tiers[-1].name}', got {self.gpus}"
            raise ValueError(message)
        return self

    @property
    def nodes(self) -> int:
        """Hosts needed for the GPUs; the last one may be part-filled."""
        return -(-self.gpus // self.gpus_per_node)

    def with_gpus(self, gpus: int) -> Self:
        """Return the same kind of cluster with another number of GPUs. Raises SpecError out of range."""
        return self.replaced(gpus=gpus)

    def with_nodes(self, nodes: int) -> Self:
        """Return the same kind of cluster with a number of full nodes. Raises SpecError out of range."""
        return self.replaced(gpus=nodes * self.gpus_per_node)

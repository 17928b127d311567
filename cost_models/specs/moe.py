"""Experts: the MLP of a mixture-of-experts layer, and which layers have one."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Flag, NonNegativeInt, PositiveInt, Spec

Experts = Annotated[PositiveInt, Field(le=100_000)]
Width = Annotated[PositiveInt, Field(le=10_000_000)]


class MoeSpec(Spec):
    """Routed and shared experts; routed ones have the matrices of the model's MLP, at another width."""

    label: ClassVar[str] = "moe"

    experts: Experts = Field(description="routed experts of a layer")
    top_k: Experts = Field(description="routed experts that see a token")
    expert_ffn: Width = Field(description="width of one routed expert")
    shared_experts: Annotated[NonNegativeInt, Field(le=1000)] = Field(0, description="experts that see every token")
    shared_ffn: Annotated[NonNegativeInt, Field(le=10_000_000)] = Field(
        0, description="width of all shared experts together"
    )
    shared_expert_gate: Flag = Field(False, description="a learned gate scales the shared experts (hidden parameters)")
    leading_dense_layers: Annotated[NonNegativeInt, Field(le=10_000)] = Field(
        0, description="first layers with the dense MLP of width ffn"
    )
    layer_step: Annotated[PositiveInt, Field(le=10_000)] = Field(
        1, description="of the layers after the leading ones every step-th has experts, the step-th first"
    )
    router_bias: Flag = Field(False, description="one bias or correction for each expert in the router")
    expert_bias: Flag = Field(False, description="bias on the matrices of the routed experts")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        if self.top_k > self.experts:
            message = f"top_k must be <= experts ({self.experts}), got {self.top_k}"
            raise ValueError(message)
        if bool(self.shared_experts) != bool(self.shared_ffn):
            wanted = "0 without shared experts" if self.shared_ffn else f"> 0 with shared_experts {self.shared_experts}"
            message = f"shared_ffn must be {wanted}, got {self.shared_ffn}"
            raise ValueError(message)
        if self.shared_expert_gate and not self.shared_experts:
            message = "shared_expert_gate must be false without shared experts, got True"
            raise ValueError(message)
        return self

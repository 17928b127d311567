"""Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1)."""

from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from cost_models.specs.base import NonNegativeInt, PositiveInt, Spec

Width = Annotated[PositiveInt, Field(le=1_000_000)]


class MlaSpec(Spec):
    """Keys and values are expanded from one latent of kv_rank; one rotary key is shared by all heads."""

    label: ClassVar[str] = "mla"

    query_rank: Annotated[NonNegativeInt, Field(le=1_000_000)] = Field(
        0, description="width of the query latent, 0 = queries are projected directly"
    )
    kv_rank: Width = Field(description="width of the key and value latent")
    nope_head_dim: Width = Field(description="part of a query or key head without positions")
    rope_head_dim: Width = Field(description="part of a query or key head with rotary positions")
    value_head_dim: Width = Field(description="width of a value head")

    @property
    def query_head_dim(self) -> int:
        """Width of a query or key head."""
        return self.nope_head_dim + self.rope_head_dim

    @model_validator(mode="after")
    def _rotary_part_is_even(self) -> Self:
        if self.rope_head_dim % 2:
            message = f"rope_head_dim must be even, got {self.rope_head_dim}"
            raise ValueError(message)
        return self

"""The architecture of a dense decoder-only transformer."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Flag, Name, PositiveInt, Spec

Width = Annotated[PositiveInt, Field(le=10_000_000)]


class ModelSpec(Spec):
    """A dense decoder-only transformer: sizes, and the choices that change its parameters, FLOPs or bytes."""

    label: ClassVar[str] = "model"

    name: Name = Field(description="name shown in reports")
    layers: Annotated[PositiveInt, Field(le=10_000)] = Field(description="transformer layers")
    hidden: Width = Field(description="width of the residual stream")
    ffn: Width = Field(description="width between the two halves of the MLP")
    heads: Annotated[PositiveInt, Field(le=100_000)] = Field(description="query heads of a layer")
    kv_heads: Annotated[PositiveInt, Field(le=100_000)] = Field(
        description="key and value heads; fewer than heads = GQA"
    )
    head_dim: Width = Field(description="width of one head; heads * head_dim may differ from hidden")
    vocab: Width = Field(description="rows of the embedding, before any padding by a launcher")
    max_seq_len: Annotated[PositiveInt, Field(le=10**9)] = Field(description="longest context, in tokens")
    gated_mlp: Flag = Field(True, description="three MLP matrices (SwiGLU and its kin) instead of two")
    norm: Literal["rmsnorm", "layernorm"] = Field("rmsnorm", description="layernorm has a bias, rmsnorm has none")
    qkv_bias: Flag = Field(False, description="bias on the query, key and value projection")
    attention_output_bias: Flag = Field(False, description="bias on the attention output projection")
    mlp_bias: Flag = Field(False, description="bias on the MLP matrices")
    positions: Literal["rope", "learned"] = Field("rope", description="learned adds max_seq_len * hidden parameters")
    tie_embeddings: Flag = Field(False, description="input embedding and output head are one matrix")
    source: str = Field("", description="where the numbers come from")

    @model_validator(mode="after")
    def _heads_group(self) -> Self:
        if self.kv_heads > self.heads or self.heads % self.kv_heads:
            message = f"kv_heads must divide heads ({self.heads}), got {self.kv_heads}"
            raise ValueError(message)
        if self.positions == "rope" and self.head_dim % 2:
            message = f"head_dim must be even with rotary positions, got {self.head_dim}"
            raise ValueError(message)
        return self

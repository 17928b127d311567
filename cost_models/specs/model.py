"""The architecture of a decoder-only transformer."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Flag, Name, NonNegativeInt, PositiveInt, Spec
from cost_models.specs.layer_pattern import LayerKind, LayerPattern, layer_kinds, layer_pattern
from cost_models.specs.mla import MlaSpec
from cost_models.specs.moe import MoeSpec

Width = Annotated[PositiveInt, Field(le=10_000_000)]


class ModelSpec(Spec):
    """A decoder-only transformer: sizes, and the choices that change its parameters, FLOPs or bytes."""

    label: ClassVar[str] = "model"

    name: Name = Field(description="name shown in reports")
    layers: Annotated[PositiveInt, Field(le=10_000)] = Field(description="transformer layers, without MTP layers")
    hidden: Width = Field(description="width of the residual stream")
    ffn: Width = Field(description="width of the MLP of a dense layer; no layer reads it when all have experts")
    heads: Annotated[PositiveInt, Field(le=100_000)] = Field(description="query heads of a layer")
    kv_heads: Annotated[PositiveInt, Field(le=100_000)] = Field(
        description="key and value heads; fewer than heads = GQA"
    )
    head_dim: Width = Field(description="width of one query head; heads * head_dim may differ from hidden")
    vocab: Width = Field(description="rows of the embedding, before any padding by a launcher")
    max_seq_len: Annotated[PositiveInt, Field(le=10**9)] = Field(description="longest context, in tokens")
    gated_mlp: Flag = Field(True, description="three MLP matrices (SwiGLU and its kin) instead of two")
    norm: Literal["rmsnorm", "layernorm"] = Field("rmsnorm", description="layernorm has a bias, rmsnorm has none")
    norm_placement: Literal["before", "after", "both"] = Field(
        "before", description="norms of attention and of the MLP: on the input (2 a layer), the output (2) or both (4)"
    )
    parallel_block: Flag = Field(False, description="attention and MLP both read the layer's input")
    shared_norm: Flag = Field(False, description="in a parallel block attention and MLP read the same norm (1 a layer)")
    qk_norm: Literal["none", "head", "projection"] = Field(
        "none", description="norm of queries and keys: weights of one head, or of the whole projection"
    )
    qkv_bias: Flag = Field(False, description="bias on the query, key and value projection")
    attention_output_bias: Flag = Field(False, description="bias on the attention output projection")
    mlp_bias: Flag = Field(False, description="bias on the matrices of dense MLPs and shared experts")
    head_bias: Flag = Field(False, description="bias on the output head")
    attention_sinks: Flag = Field(False, description="one learned logit for each head beside the attention scores")
    positions: Literal["rope", "learned", "alibi", "none"] = Field(
        "rope", description="learned adds position_rows * hidden parameters"
    )
    position_offset: Annotated[NonNegativeInt, Field(le=1000)] = Field(
        0, description="rows of learned positions in front of the first (OPT: 2)"
    )
    embedding_norm: Flag = Field(False, description="a norm behind the token embedding")
    tie_embeddings: Flag = Field(False, description="input embedding and output head are one matrix")
    sliding_window: Annotated[NonNegativeInt, Field(le=10**9)] = Field(
        0, description="tokens that a windowed layer attends to, 0 = every layer has full attention"
    )
    window_kind: Literal["sliding", "chunked"] = Field(
        "sliding", description="sliding = the last tokens; chunked = the tokens since the last multiple of the window"
    )
    full_attention_step: Annotated[NonNegativeInt, Field(le=10_000)] = Field(
        0, description="every step-th layer has full attention, the step-th first; 0 = none has, when windowed"
    )
    moe: MoeSpec | None = Field(None, description="experts, none in a dense model")
    mla: MlaSpec | None = Field(None, description="latent attention, none with ordinary heads")
    mtp_layers: Annotated[NonNegativeInt, Field(le=100)] = Field(
        0, description="multi-token-prediction layers after the last one"
    )
    source: str = Field("", description="where the numbers come from")

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        for message in (*self._attention_faults(), *self._layer_faults()):
            raise ValueError(message)
        return self

    def _attention_faults(self) -> list[str]:
        faults = []
        if self.kv_heads > self.heads or self.heads % self.kv_heads:
            faults.append(f"kv_heads must divide heads ({self.heads}), got {self.kv_heads}")
        if self.positions == "rope" and self.mla is None and self.head_dim % 2:
            faults.append(f"head_dim must be even with rotary positions, got {self.head_dim}")
        if self.position_offset and self.positions != "learned":
            faults.append(f"position_offset must be 0 without learned positions, got {self.position_offset}")
        if self.mla is not None:
            if self.kv_heads != self.heads:
                faults.append(f"kv_heads must be heads ({self.heads}) with mla, got {self.kv_heads}")
            if self.head_dim != self.mla.query_head_dim:
                wanted = f"nope_head_dim + rope_head_dim ({self.mla.query_head_dim})"
                faults.append(f"head_dim must be {wanted} with mla, got {self.head_dim}")
            if self.qkv_bias or self.qk_norm != "none":
                faults.append("qkv_bias and qk_norm must be off with mla, which norms its latents")
        return faults

    def _layer_faults(self) -> list[str]:
        faults = []
        if self.shared_norm and not self.parallel_block:
            faults.append("shared_norm must be false without parallel_block, got True")
        if self.parallel_block and self.norm_placement != "before":
            faults.append(f"norm_placement must be 'before' in a parallel block, got '{self.norm_placement}'")
        if self.full_attention_step == 1 or (self.full_attention_step and not self.sliding_window):
            allowed = "0 or >= 2" if self.sliding_window else "0 without sliding_window"
            faults.append(f"full_attention_step must be {allowed}, got {self.full_attention_step}")
        if self.window_kind == "chunked" and not self.sliding_window:
            faults.append("window_kind must be 'sliding' without sliding_window, got 'chunked'")
        if self.moe is not None and self.moe.leading_dense_layers + self.moe.layer_step > self.layers:
            first = f"leading_dense_layers {self.moe.leading_dense_layers} + layer_step {self.moe.layer_step}"
            faults.append(f"layers must be >= the first with experts ({first}), got {self.layers}")
        return faults

    @property
    def layer_kinds(self) -> tuple[LayerKind, ...]:
        """The kind of every layer, without MTP layers."""
        return layer_kinds(
            self.layers,
            window=self.sliding_window,
            full_attention_step=self.full_attention_step,
            leading_dense=self.moe.leading_dense_layers if self.moe else 0,
            moe_step=self.moe.layer_step if self.moe else 0,
        )

    @property
    def layer_pattern(self) -> LayerPattern:
        """The layers as leading + period * repeats + trailing; leading are the leading dense layers of an MoE model."""
        return layer_pattern(self.layer_kinds, self.moe.leading_dense_layers if self.moe else 0)

    @property
    def mtp_kind(self) -> LayerKind:
        """The kind of an MTP layer: full attention, and experts where the last layer has them."""
        return LayerKind(0, self.layer_kinds[-1].moe)

    @property
    def moe_layers(self) -> int:
        """Layers with experts, without MTP layers."""
        return sum(kind.moe for kind in self.layer_kinds)

    @property
    def position_rows(self) -> int:
        """Rows of the learned position table, 0 without one."""
        return self.max_seq_len + self.position_offset if self.positions == "learned" else 0

"""What a training step processes."""

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from cost_models.specs.base import PositiveInt, Spec
from cost_models.specs.model import ModelSpec

DEFAULT_MAX_SEQ_LEN = 8192
DEFAULT_BATCH_TOKENS = 4 * 1024 * 1024
DEFAULT_BATCH_TOKENS_PER_GPU = 1024

Imbalance = Annotated[float, Field(strict=True, ge=1, le=1000, allow_inf_nan=False)]


class WorkloadSpec(Spec):
    """One optimizer step: sequences, their length, and how they are computed."""

    label: ClassVar[str] = "workload"

    seq_len: Annotated[PositiveInt, Field(le=10**9)] = Field(description="tokens of a sequence")
    global_batch: Annotated[PositiveInt, Field(le=10**9)] = Field(description="sequences of a step, over the whole job")
    precision: Literal["bf16", "fp8"] = Field("bf16", description="data type of the GEMMs")
    expert_imbalance: Imbalance = Field(1.0, description="tokens of the fullest expert rank over the mean")
    document_mask_imbalance: Imbalance = Field(
        1.0, description="attention work of the slowest context-parallel rank over the mean"
    )
    optimizer: Literal["adamw", "adamw-8bit", "precision-aware"] = Field(
        "adamw", description="AdamW with moments in fp32, in 8 bits, or with moments and gradients in bf16"
    )

    @property
    def tokens(self) -> int:
        """Tokens of one step."""
        return self.seq_len * self.global_batch


def default_workload(model: ModelSpec, gpus: int) -> WorkloadSpec:
    """Return the workload assumed when none is given: context up to 8192 tokens, batch of 4 Mi tokens or more.

    The batch is max(4 Mi tokens, 1 Ki tokens x `gpus`), rounded to whole sequences.
    """
    seq_len = min(model.max_seq_len, DEFAULT_MAX_SEQ_LEN)
    tokens = max(DEFAULT_BATCH_TOKENS, DEFAULT_BATCH_TOKENS_PER_GPU * gpus)
    return WorkloadSpec(seq_len=seq_len, global_batch=max(1, round(tokens / seq_len)))

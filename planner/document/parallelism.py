"""The layout of a plan: the degrees and the batch split, one value of each for the whole job."""

from typing import Literal, Self

from pydantic import Field, model_validator

from cost_models.specs.base import Flag
from planner.document.record import Count, Degree, Record


class Parallelism(Record):
    """The layout. The only owner of "the degrees multiply to the GPUs in use"."""

    tp: Degree = Field(description="tensor parallel degree")
    sequence_parallel: Flag = Field(description="norms and residuals are split along the sequence over the tp group")
    pp: Degree = Field(description="pipeline parallel degree")
    vpp: Degree = Field(default=1, description="model chunks on each pipeline rank")
    cp: Degree = Field(default=1, description="context parallel degree")
    cp_type: Literal["all_gather", "ring", "ulysses", "hierarchical"] = Field(
        default="all_gather", description="how keys and values reach the other ranks of the cp group"
    )
    cp_heads: Degree = Field(default=1, description="neighbours of the cp group that trade sequence for heads")
    ep: Degree = Field(default=1, description="expert parallel degree")
    etp: Degree = Field(default=1, description="tensor parallel degree inside an expert")
    dp: Degree = Field(description="data parallel degree, dp_shard * dp_replicate")
    dp_shard: Degree = Field(description="data parallel ranks that share one copy of the sharded states")
    dp_replicate: Degree = Field(default=1, description="copies of the sharded states")
    rank_order: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] = Field(
        default="tp-cp-ep-dp-pp", description="order of the groups over the ranks, innermost first"
    )
    micro_batch_size: Degree = Field(description="sequences of one micro-batch")
    num_microbatches: Degree = Field(description="micro-batches of one pipeline in a step")
    schedule: str = Field(min_length=1, description="name of the pipeline schedule")
    group_size: Count = Field(default=0, description="micro-batches of a chunk in a row when interleaved, 0: not cut")
    slices: Degree = Field(default=1, description="slices that a slice-level schedule cuts a sequence into")
    gpus_used: Degree = Field(description="tp * cp * pp * dp")
    gpus_idle: Count = Field(default=0, description="GPUs of the cluster that the plan leaves idle")

    @property
    def global_batch(self) -> int:
        """Sequences of one step."""
        return self.micro_batch_size * self.num_microbatches * self.dp

    @model_validator(mode="after")
    def _degrees_multiply(self) -> Self:
        product = self.tp * self.cp * self.pp * self.dp
        if product != self.gpus_used:
            message = f"gpus_used must be tp * cp * pp * dp = {product}, got {self.gpus_used}"
            raise ValueError(message)
        if self.dp_shard * self.dp_replicate != self.dp:
            message = f"dp must be dp_shard * dp_replicate = {self.dp_shard * self.dp_replicate}, got {self.dp}"
            raise ValueError(message)
        ranks = product // self.pp
        if ranks % (self.ep * self.etp):
            message = f"ep * etp must divide the {ranks} ranks of a pipeline stage, got {self.ep} * {self.etp}"
            raise ValueError(message)
        return self

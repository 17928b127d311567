"""Mist's measured runs under this project's own cost model."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from cost_models import schedules
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from cost_models.specs import catalog
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.fitting import FULL
from planner.fixed import FixedStage, fixed_candidate, zero_mode
from planner.incumbent import Candidate
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import LAYOUT_FIELDS, SCHEDULES
from tests.oracles.mist.gpt import SIZES, VOCAB
from tests.oracles.mist.hardware import Array

LLAMA_FFN = {"1.3b": 5632, "2.7b": 6912, "7b": 11008}


def model_of(run: dict[str, Any]) -> ModelSpec:
    """The architecture of a run: GPT with layer norms, learned positions and no biases, or Llama."""
    hidden, layers, heads = SIZES[run["size"]]
    gpt = run["family"] == "gpt"
    return ModelSpec(
        name=f"{run['family']}-{run['size']}",
        layers=layers,
        hidden=hidden,
        ffn=4 * hidden if gpt else LLAMA_FFN[run["size"]],
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        vocab=VOCAB,
        max_seq_len=run["seq_len"],
        gated_mlp=not gpt,
        norm="layernorm" if gpt else "rmsnorm",
        positions="learned" if gpt else "rope",
    )


def recipe_of(run: dict[str, Any]) -> FrameworkRecipe:
    """Mist's runtime: weights, gradients and logits in 16 bits, Adam in 32, the loss keeping one copy of the logits.

    Its gradients are added up by kernels of their own.
    """
    return FrameworkRecipe(
        name="mist",
        gradient_bytes=2,
        gradient_reduce_bytes=2,
        fused_gradient_accumulation=False,
        flash_attention=run["flash"],
        sequence_parallel=False,
        loss_bytes_per_logit=4,
    )


@dataclass(frozen=True)
class Predicted:
    """A run, and what the cost model says of it."""

    run: dict[str, Any]
    candidate: Candidate

    @classmethod
    def of(cls, run: dict[str, Any]) -> "Predicted":
        """The run's plan costed as it stands, with the catalog's profile of the L4."""
        cluster = catalog.load_cluster("l4-pcie", run["gpus"])
        request = PlanRequest(
            model=model_of(run),
            cluster=cluster,
            workload=WorkloadSpec(seq_len=run["seq_len"], global_batch=run["global_batch"]),
            profile=catalog.load_profile("l4"),
            recipe=recipe_of(run),
            capacity_bytes=cluster.gpu.usable_memory_bytes,
        )
        stages = run["stages"]
        dp = run["gpus"] // len(stages)
        layout = dict.fromkeys(LAYOUT_FIELDS, 1) | {
            "sequence_parallel": 0,
            "cp_ring": 0,
            "rank_order": 0,
            "schedule": SCHEDULES.index("1f1b"),
            "pp": len(stages),
            "dp": dp,
            "dp_shard": dp,
            "micro_batch_size": stages[0]["micro_batch"],
            "num_microbatches": run["micro_batches"],
        }
        model = CostModel(request, offload=any(_moved(stage) for stage in stages))
        return cls(run, fixed_candidate(model, layout, _fixed_stages(request.model, stages)))

    @cached_property
    def stages(self) -> dict[str, Any]:
        """Every output of the cost model, an array over the stages by name."""
        return self.candidate.pipeline.chosen(self.candidate.choice)

    @property
    def step_s(self) -> float:
        """Seconds of a step."""
        return self.candidate.objective_s

    @property
    def allocated_mib(self) -> Array:
        """Peak of what tensors take, by stage."""
        mib: Array = self.stages["allocated_bytes"] / 2**20
        return mib

    @property
    def global_s(self) -> float:
        """Gradient norm and optimizer step."""
        return float(self.stages["global_s"].max())

    @property
    def times(self) -> StageTimes:
        """Seconds of the stages."""
        return self.candidate.pipeline.times(self.candidate.choice)

    def replayed_s(self, times: StageTimes) -> float:
        """Seconds of a step with other times of the stages."""
        pipeline = self.candidate.pipeline
        table = schedules.actions("1f1b", pipeline.layout["pp"], 1, pipeline.layout["num_microbatches"])
        return float(simulate(table, times).span_s) + self.global_s


def _moved(stage: dict[str, Any]) -> float:
    return float(stage["weights"] + stage["gradients"] + stage["optimizer"] + stage["activations"])


def _parameters(model: ModelSpec, stages: Sequence[dict[str, Any]]) -> Array:
    """Parameters of the layers of each stage, and of the embedding or head beside them, float[2, stages]."""
    layer = 4 * model.hidden**2 + (3 if model.gated_mlp else 2) * model.hidden * model.ffn
    ends = np.zeros(len(stages))
    ends[0] += model.vocab * model.hidden
    ends[-1] += model.vocab * model.hidden
    return np.stack([layer * np.array([stage["layers"] for stage in stages], dtype=np.float64), ends])


def _fixed_stages(model: ModelSpec, stages: Sequence[dict[str, Any]]) -> list[FixedStage]:
    """The stages in the planner's terms: its shares are of all states of a stage, Mist's of those of the layers."""
    of_layers, of_ends = _parameters(model, stages)
    share = of_layers / (of_layers + of_ends)
    return [
        FixedStage(
            stage["layers"],
            zero=zero_mode(1 + stage["shard_gradients"] + stage["shard_weights"], reshard=False),
            recompute=FULL if stage["recomputed"] else 0,
            recompute_per_chunk=stage["recomputed"],
            offload=(
                stage["weights"] * part,
                stage["gradients"] * part,
                stage["optimizer"] * part,
                stage["activations"],
            ),
        )
        for stage, part in zip(stages, share.tolist(), strict=True)
    ]

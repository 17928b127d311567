"""Small jobs for the oracles: tiny models on a few GPUs, with memories that make recompute and sharding bind."""

import re
from dataclasses import dataclass, replace

from planner.bounds import least_memory
from planner.fitting import MARGIN
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.space import layouts, meshes

SHAPE = ("hidden=1024", "ffn=2048", "heads=8", "kv_heads=4", "head_dim=128", "vocab=4096")
ROOMY_BYTES = 80e9


@dataclass(frozen=True)
class Space:
    """One job.

    `memory` is a share of the way from what the least demanding layout needs to what is plenty for the most demanding
    one. `changes` are fields of the model or, with their spec's name in front, of any other.
    """

    gpus: int
    layers: int
    batch: int
    memory: float
    schedule: str | None = None
    target: str = "any"
    gpus_per_node: int = 2
    seq_len: str = "1k"
    changes: tuple[str, ...] = ()
    search: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Short and unique."""
        size = f"{self.gpus}gpus-{self.layers}layers-batch{self.batch}-memory{self.memory}-node{self.gpus_per_node}"
        changes = (re.sub(r".*\.(?=\w+=)|[^\w=]+", "", change) for change in self.changes)
        schedule = "every" if self.schedule == EVERY_SCHEDULE else self.schedule or self.target
        return "-".join([size, self.seq_len, schedule, *changes, *self.search])

    def request(self, gap: float = 0.0) -> PlanRequest:
        """The request, with the memory that the space asks for."""
        roomy = self._roomy()
        model = CostModel(roomy)
        costs = LayoutCosts.of(model, layouts(roomy, meshes(roomy)))
        least = least_memory(model, costs)["device_bytes"] * (1.0 + MARGIN)
        tight, plenty = float(least.min()), 1.3 * float(least.max())
        return roomy.replaced(gap=gap, capacity_bytes=tight + self.memory * (plenty - tight))

    def with_memory(self, *shares: float) -> "list[Space]":
        """The job with several memories."""
        return [replace(self, memory=share) for share in shares]

    def _roomy(self) -> PlanRequest:
        changes = (change if "." in change else f"model.{change}" for change in (*SHAPE, *self.changes))
        return build_request(
            "llama3-8b",
            self.gpus,
            "80GB",
            gpus_per_node=self.gpus_per_node,
            seq_len=self.seq_len,
            global_batch=self.batch,
            target=self.target,
            schedule=self.schedule,
            overrides=[f"model.layers={self.layers}", *changes],
        ).replaced(capacity_bytes=ROOMY_BYTES, search=self.search)


# Heads that no tensor parallelism of up to six ranks divides, so that pipelines matter.
ODD_HEADS = ("heads=7", "kv_heads=7", "hidden=896")
SLOW_NETWORK = ("cluster.tiers.1.link_bandwidth_bytes_per_s=1e9",)
NO_OVERLAP = ("recipe.overlap_gradient_reduce=false", "recipe.overlap_parameter_gather=false")
TIED = ("vocab=64000", "tie_embeddings=true")
UNFUSED = ("recipe.flash_attention=false", "recipe.dropout=true")

SPACES = [
    *Space(1, 4, 3, 0).with_memory(0.02, 0.5),
    *Space(2, 3, 4, 0).with_memory(0.02, 0.3, 1.0),
    *Space(2, 2, 2, 0, changes=("vocab=64000", "tie_embeddings=true")).with_memory(0.05, 0.4),
    *Space(3, 5, 2, 0, changes=ODD_HEADS).with_memory(0.1, 0.5),
    *Space(4, 4, 4, 0).with_memory(0.05, 0.4),
    *Space(4, 6, 2, 0, changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.05, 0.2, 0.6),
    *Space(4, 5, 4, 0, schedule="interleaved", gpus_per_node=1).with_memory(0.1, 0.3, 0.6),
    *Space(4, 6, 4, 0, schedule="gpipe", changes=SLOW_NETWORK).with_memory(0.1, 0.4),
    *Space(4, 6, 4, 0, schedule="1f1b", changes=ODD_HEADS).with_memory(0.1, 0.3),
    *Space(5, 5, 5, 0, changes=SLOW_NETWORK + NO_OVERLAP).with_memory(0.2),
    *Space(6, 4, 6, 0, changes=NO_OVERLAP).with_memory(0.1, 0.4),
    *Space(7, 6, 1, 0, gpus_per_node=1, changes=SLOW_NETWORK).with_memory(0.2, 0.7),
    *Space(8, 4, 4, 0, gpus_per_node=4, changes=("vocab=30000",)).with_memory(0.1, 0.3),
    *Space(4, 7, 4, 0, schedule="interleaved", seq_len="4k", changes=UNFUSED + NO_OVERLAP).with_memory(0.3, 1.0),
]

# Sequences in slices: attention that grows, chunks of unequal ends, tied ends that are shared out, all schedules.
SLICES = [
    *Space(2, 4, 2, 0, schedule="slimpipe", seq_len="8k", gpus_per_node=1).with_memory(0.3, 1.0),
    *Space(4, 6, 2, 0, schedule="slimpipe", seq_len="4k", changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.1, 0.5),
    *Space(2, 5, 2, 0, schedule="slimpipe", seq_len="4k", changes=TIED + NO_OVERLAP).with_memory(0.8, 3.0),
    *Space(2, 5, 3, 0, schedule="seq1f1b", seq_len="4k", gpus_per_node=1).with_memory(0.3, 0.5),
    *Space(3, 6, 2, 0, schedule="seq1f1b", seq_len="8k", changes=ODD_HEADS + UNFUSED).with_memory(0.1, 0.5),
    *Space(2, 4, 2, 0, schedule="terapipe", seq_len="4k", changes=SLOW_NETWORK).with_memory(0.5, 0.8),
    *Space(2, 5, 3, 0, schedule="breadth-first", changes=SLOW_NETWORK).with_memory(0.2, 0.8),
    *Space(2, 4, 2, 0, target="runtime", seq_len="8k", gpus_per_node=1, changes=SLOW_NETWORK).with_memory(0.02, 0.5),
    *Space(4, 3, 2, 0, target="runtime", seq_len="16k", changes=("kv_heads=8", *SLOW_NETWORK)).with_memory(0.05),
    *Space(4, 4, 2, 0, target="runtime", seq_len="4k", changes=ODD_HEADS).with_memory(0.05, 0.2),
]

# Experts, latent attention, windows, multi-token prediction; sequences so long that context parallelism is searched.
EXPERTS = ('moe={"experts": 8, "top_k": 2, "expert_ffn": 4096}',)
WIDE_EXPERTS = ('moe={"experts": 2, "top_k": 1, "expert_ffn": 8192}',)
LEADING_DENSE = (
    'moe={"experts": 6, "top_k": 2, "expert_ffn": 512, "shared_experts": 1, "shared_ffn": 512, '
    '"leading_dense_layers": 1}',
    "mtp_layers=1",
)
EVERY_SECOND_HAS_EXPERTS = ('moe={"experts": 4, "top_k": 1, "expert_ffn": 1024, "layer_step": 2}',)
WINDOWS = ("sliding_window=256", "full_attention_step=2")
LATENT = (
    'mla={"query_rank": 256, "kv_rank": 128, "nope_head_dim": 64, "rope_head_dim": 32, "value_head_dim": 64}',
    "kv_heads=8",
    "head_dim=96",
)

KINDS = [
    *Space(4, 2, 4, 0, gpus_per_node=4, changes=EXPERTS).with_memory(0.2, 1.0),
    *Space(4, 2, 4, 0, changes=EXPERTS + SLOW_NETWORK).with_memory(0.05, 0.5),
    *Space(4, 2, 2, 0, gpus_per_node=4, changes=WIDE_EXPERTS).with_memory(0.5),
    *Space(3, 5, 3, 0, changes=ODD_HEADS + SLOW_NETWORK + LEADING_DENSE).with_memory(0.05, 0.2, 0.5),
    *Space(4, 7, 4, 0, schedule="interleaved", changes=ODD_HEADS + EVERY_SECOND_HAS_EXPERTS).with_memory(0.2, 1.0),
    *Space(4, 7, 1, 0, changes=ODD_HEADS + SLOW_NETWORK + WINDOWS).with_memory(0.2, 0.5),
    *Space(4, 7, 4, 0, schedule="interleaved", changes=ODD_HEADS + SLOW_NETWORK + WINDOWS).with_memory(0.2),
    *Space(4, 3, 2, 0, changes=LATENT).with_memory(0.05, 0.4),
    *Space(4, 5, 4, 0, schedule="interleaved", gpus_per_node=4, changes=LATENT + LEADING_DENSE).with_memory(0.5),
    *Space(2, 3, 1, 0, seq_len="16k").with_memory(0.05, 0.3),
    *Space(4, 2, 1, 0, seq_len="32k", changes=SLOW_NETWORK).with_memory(0.1, 0.4),
    *Space(2, 2, 1, 0, seq_len="16k", changes=EXPERTS + WINDOWS).with_memory(0.2),
    *Space(8, 2, 1, 0, seq_len="32k", changes=("kv_heads=8", *SLOW_NETWORK)).with_memory(0.05, 0.5),
]

# Split backwards, chunks that go down the ranks and back, groups of other sizes; several schedules at once.
EVERY_SCHEDULE = "1f1b,interleaved,gpipe,breadth-first,zb-h1,zb-h2,zb-v,v-half,v-min,dualpipe-v,flexible"
WIDE_ENDS = ("vocab=20000", "tie_embeddings=true", "positions=learned")
SHAPES = [
    *Space(3, 6, 6, 0, schedule="zb-h1", changes=ODD_HEADS).with_memory(0.1, 0.3),
    *Space(4, 6, 4, 0, schedule="zb-h2", changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.1, 0.6),
    *Space(3, 6, 6, 0, schedule="zb-h2,zb-v", changes=ODD_HEADS + UNFUSED).with_memory(0.2, 0.6),
    *Space(3, 7, 6, 0, schedule="zb-v", changes=ODD_HEADS).with_memory(0.1, 0.4),
    *Space(4, 7, 4, 0, schedule="zb-v", changes=ODD_HEADS + WIDE_ENDS).with_memory(0.05, 0.3),
    *Space(3, 7, 6, 0, schedule="v-half", changes=ODD_HEADS + NO_OVERLAP).with_memory(0.1, 0.5),
    *Space(4, 6, 4, 0, schedule="v-min", changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.05, 0.3),
    *Space(3, 6, 6, 0, schedule="dualpipe-v", changes=ODD_HEADS + LEADING_DENSE).with_memory(0.2, 0.5),
    *Space(2, 6, 4, 0, schedule="breadth-first", changes=NO_OVERLAP).with_memory(0.3, 0.8),
    *Space(4, 7, 3, 0, schedule="flexible", changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.3),
    *Space(4, 6, 6, 0, schedule="flexible", gpus_per_node=1, changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.1),
    *Space(3, 6, 6, 0, schedule=EVERY_SCHEDULE, changes=ODD_HEADS + SLOW_NETWORK).with_memory(0.05, 0.2, 0.6),
]

"""What `--why-not` says of a layout is what costing that layout says: one model, asked in three ways."""

import random
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import pytest

from planner.document import PlanDocument, virtual_stages
from planner.evaluate.answers import answers
from planner.fitting import FULL, MARGIN
from planner.fixed import FixedStage, fixed_candidate, planned
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.search import plan
from planner.space import CONTEXT_TYPES, RANK_ORDERS, SCHEDULES, ZERO_MODES, context_type, layouts, meshes
from planner.why_not import why_not

GPUS, BATCH = 16, 48
HELD = ("tp", "cp", "cp_heads", "pp", "vpp", "dp", "dp_shard", "micro_batch_size", "num_microbatches")


@dataclass(frozen=True)
class Asked:
    """A layout, how its stages shard and recompute, and the text that asks for it."""

    layout: dict[str, int]
    zero_stage: int
    recompute: str

    @property
    def text(self) -> str:
        layout = self.layout
        values = {name: layout[name] for name in HELD}
        values |= {
            "cp_type": CONTEXT_TYPES[int(context_type(layout))],
            "rank_order": RANK_ORDERS[layout["rank_order"]],
            "schedule": SCHEDULES[layout["schedule"]],
            "zero_stage": self.zero_stage,
            "recompute": self.recompute,
        }
        return ",".join(f"{name}={value}" for name, value in values.items())


@lru_cache
def job(mem: str) -> tuple[PlanRequest, PlanDocument]:
    """Llama-3-8B on 16 H100 and its plan."""
    request = build_request("llama3-8b", GPUS, "80GB", global_batch=BATCH, overrides=["model.layers=8"])
    roomy = plan(request)
    return request.replaced(capacity_bytes=float(mem)), roomy


def random_layout(request: PlanRequest, draw: random.Random, *, of_a_table: bool = False) -> Asked:
    """One of the layouts on all GPUs, sharded and recomputing alike on all stages.

    With `of_a_table` one that rows of runs have columns for: context in rings, one order, one shard group.
    """
    columns = layouts(request, meshes(request))
    wanted = columns["world"] == GPUS
    if of_a_table:
        wanted &= (columns["cp_ring"] == (columns["cp"] > 1)) & (columns["cp_heads"] == 1)
        wanted &= (columns["rank_order"] == 0) & (columns["dp_replicate"] == 1)
    row = int(draw.choice(np.flatnonzero(wanted).tolist()))
    layout = {name: int(column[row]) for name, column in columns.items()}
    shards = layout["dp"] * layout["cp"] > 1
    # ZeRO-0 is listed once, under the layout whose shard group is all of dp.
    stages = [0] if not shards else [1, 2, 3] if layout["dp_shard"] < layout["dp"] else [0, 1, 2, 3]
    return Asked(layout, draw.choice(stages), draw.choice(["none", "full"]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(12))
def test_the_step_is_that_of_costing_the_plan_and_of_a_table_of_runs(seed: int) -> None:
    """The best split of a layout, costed by itself and as a row of runs, takes as long to 1e-9, and as many bytes."""
    request, document = job("8e13")
    asked = random_layout(request, random.Random(seed), of_a_table=seed % 4 > 0)
    answer = why_not(document, asked.text, request)
    assert answer.kind in ("slower", "tie", "same")
    other = answer.other or document
    step_s = other.predicted.step_time_s
    assert planned(other, request.profile).objective_s == pytest.approx(step_s, rel=1e-9)
    assert answer.slower_by is None or answer.slower_by == pytest.approx(
        step_s / document.predicted.step_time_s - 1.0, rel=1e-9, abs=1e-12
    )
    if seed % 4 == 0:
        return  # a row of runs has no columns for these
    run = answers([row_of(other)])[0]
    assert run.costs is not None, run.message
    assert run.costs.step_time_s == pytest.approx(step_s, rel=1e-9)
    allocated = max(stage.predicted.allocated_bytes for stage in other.stages)
    assert run.costs.allocated_bytes == pytest.approx(allocated, rel=1e-9)


def row_of(document: PlanDocument) -> dict[str, str]:
    """The plan as a row of a table of runs."""
    layout, stage = document.parallelism, document.stages[0]
    reshard = {each.reshard_after_forward for each in document.stages}
    assert len(reshard) == 1
    sharding = {0: "none", 1: "zero1", 2: "zero2", 3: "fsdp" if reshard.pop() else "shard_grad_op"}
    chunks = virtual_stages(document.stages, layout.schedule)
    return {
        "gpu": "h100",
        "recipe": "megatron",
        "model": "llama3-8b",
        "n_layers": "8",
        "n_gpus": str(GPUS),
        "precision": "bf16",
        "seq_len": str(document.workload.seq_len),
        "global_batch_seqs": str(BATCH),
        "micro_batch": str(layout.micro_batch_size),
        "tp": str(layout.tp),
        "pp": str(layout.pp),
        "vpp": str(layout.vpp),
        "cp": str(layout.cp),
        "ep": "1",
        "schedule": layout.schedule,
        "stage_layers": ",".join(str(chunk.layers) for chunk in chunks),
        "zero_or_fsdp": sharding[stage.zero_stage],
        "recompute": "full" if stage.recompute.set else "none",
    }


@pytest.mark.parametrize("seed", range(6))
def test_what_does_not_fit_is_short_of_what_costing_it_needs(seed: int) -> None:
    """Without room for anything, the shortfall is that of the fullest stage of the even split, costed by itself."""
    request, document = job("1e9")
    asked = random_layout(request, random.Random(seed))
    answer = why_not(document, asked.text, request)
    assert answer.kind == "over_memory"
    assert answer.shortfall is not None
    assert answer.shortfall.needed_bytes == pytest.approx(even_split_bytes(request, asked) * (1 + MARGIN), rel=1e-9)


def even_split_bytes(request: PlanRequest, asked: Asked) -> float:
    """Bytes of the fullest stage where the last ranks have the rest, each in the better mode of its ZeRO stage."""
    layout, pp = asked.layout, asked.layout["pp"]
    share, rest = divmod(request.model.layers, pp)
    needed = []
    for mode in np.flatnonzero(ZERO_MODES["zero_stage"] == asked.zero_stage).tolist():
        layers = [share + (rank >= pp - rest) for rank in range(pp)]
        full = FULL if asked.recompute == "full" else 0
        stages = [FixedStage(count, mode, full, count if full else 0) for count in layers]
        needed.append(fixed_candidate(CostModel(request), layout, stages).pipeline.options["device_bytes"])
    return float(np.min(needed, axis=0).max())

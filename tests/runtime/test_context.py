"""Context parallelism: which tokens a rank has, the collective, and attention of every kind against one process."""

from typing import Any

import pytest
import torch
import torch.distributed as dist

from planner.document import Recompute
from runtime.collectives import gather_sequence
from runtime.context import ContextParallel
from runtime.shrink import shrunk
from runtime.support import check
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import small_job, small_model
from tests.runtime.parity import apart
from tests.runtime.test_collectives import drawn
from tests.runtime.test_parity import TOLERANCE

CPU = torch.device("cpu")


@pytest.mark.parametrize("size", [1, 2, 3, 4])
def test_ranks_share_out_a_sequence_with_equal_work(size: int) -> None:
    """Every token once; under a causal mask every rank attends to as many keys."""
    length = 24 // size
    ranks = [ContextParallel(size, rank) for rank in range(size)]
    parts = [one.positions(length, CPU) for one in ranks]
    assert sorted(torch.cat(parts).tolist()) == list(range(24))
    assert len({int((part + 1).sum()) for part in parts}) == 1
    assert torch.equal(ranks[0].all_positions(length, CPU), torch.cat(parts))
    tokens = torch.arange(48).view(2, 24)
    assert torch.equal(ranks[-1].own(tokens), tokens[:, parts[-1]])


def gathered() -> float:
    """How far gathered tokens and their gradient are from what they should be: rank r multiplies by r + 1."""
    size, rank = dist.get_world_size(), dist.get_rank()
    context = ContextParallel(size, rank, dist.group.WORLD)
    parts, weight = drawn(1, size, 2, 3, 4), drawn(2, 2, 3 * size, 4)
    own = parts[rank].detach().requires_grad_()
    whole = gather_sequence(own, context)
    (whole * weight * (rank + 1)).transpose(0, 2).sum().backward()
    assert own.grad is not None
    expected = weight[:, 3 * rank : 3 * (rank + 1)] * sum(range(1, size + 1))
    forward = (whole - torch.cat(list(parts), dim=1)).abs().max()
    return torch.maximum(forward, (own.grad - expected).abs().max()).item()


@pytest.mark.parametrize("size", [2, 4])
def test_gradients_of_gathered_tokens_go_back_to_their_ranks(size: int, ranks: Ranks) -> None:
    """Values and gradients that are not contiguous are those of one rank."""
    assert max(ranks(size).run(gathered)) < 1e-12


CASES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sliding windows": ({"sliding_window": 5, "full_attention_step": 2}, {}),
    "chunked windows": ({"sliding_window": 5, "window_kind": "chunked"}, {}),
    "more ranks than key heads": ({}, {"tp": 4, "cp": 2}),
    "4 ranks": ({}, {"cp": 4, "zero": 3, "reshard": True}),
    "split backwards": ({}, {"pp": 2, "schedule": "zb-v", "micro_batches": 4, "zero": 0}),
    **{
        f"recompute {module}": ({}, {"tp": 2, "recompute": Recompute(set=(module,), layers=3)})
        for module in ("norm", "core_attention", "full")
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_context_parallel_attention_agrees_with_one_process(case: str, ranks: Ranks) -> None:
    """In float64, losses and gradients."""
    model, layout = CASES[case]
    job = small_job(small_model(**model), **{"cp": 2, **layout})
    check(job)
    by_loss, by_gradient = apart(ranks(job.layout.gpus_used), job)
    assert by_loss <= TOLERANCE
    assert by_gradient <= TOLERANCE


def test_a_shrunk_plan_keeps_its_context_parallelism() -> None:
    """With tensor and pipeline parallelism, on no more than 8 ranks."""
    job = small_job(small_model(8), tp=4, pp=4, cp=2, shard=2, replicate=2, micro_batches=4)
    layouts = [small.layout for small in shrunk(job)]
    assert [(one.tp, one.pp, one.cp, one.dp_shard, one.dp_replicate) for one in layouts] == [
        (2, 2, 1, 2, 1),
        (1, 2, 1, 2, 2),
        (2, 2, 2, 1, 1),
    ]

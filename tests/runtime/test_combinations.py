"""Random combinations of features against one process, in float64 and in bf16."""

import random
from typing import Any

import pytest

from planner.document import Recompute
from planner.document.honoured import MODULES, SCHEDULES
from planner.document.job import Job
from runtime.errors import UnsupportedPlanError
from runtime.precision import precision_of
from runtime.support import check
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import MODELS, RECIPE, small_job, small_model
from tests.runtime.parity import apart

SIZES, EACH = (2, 4, 8), 12
TOLERANCE = 1e-10
# Losses are sums of many tokens; a gradient is off by some units of bf16's 2^-8 of the tensor's largest.
BF16_LOSS, BF16_GRADIENT = 0.01, 0.05


def drawn_job(numbers: random.Random, size: int) -> Job:
    """A random job on so many ranks that the runtime honours."""
    while True:
        degrees = _degrees(numbers, size)
        pp = degrees["pp"]
        schedule = numbers.choice(SCHEDULES) if pp > 1 else "1f1b"
        vpp = numbers.choice((2, 3)) if schedule in ("interleaved", "breadth-first") else 1
        chunks = pp * (2 if schedule in ("zb-v", "v-half", "v-min", "dualpipe-v") else vpp)
        layers = tuple(numbers.randint(1, 2) for _ in range(chunks))
        model = small_model(sum(layers), **numbers.choice(list(MODELS.values())))
        modules = tuple(module for module in MODULES if numbers.random() < 0.3)
        options: dict[str, Any] = {
            "schedule": schedule,
            "vpp": vpp,
            "layers": layers,
            "micro_batches": numbers.randint(1, 8),
            "micro_batch_size": numbers.randint(1, 2),
            "zero": tuple(numbers.randint(0, 3) for _ in range(pp)),
            "reshard": numbers.random() < 0.5,
            "recompute": Recompute(set=modules, layers=1) if modules else Recompute(),
            "rank_order": numbers.choice(("tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp")),
            "sequence_parallel": numbers.random() < 0.7,
        }
        job = small_job(model, **degrees, **options)
        try:
            check(job)
        except UnsupportedPlanError:
            continue
        return job


def _degrees(numbers: random.Random, size: int) -> dict[str, int]:
    """Powers of two for tp, pp, cp, shard and replicate that make up the ranks; tp at most 4."""
    degrees = dict.fromkeys(("tp", "pp", "cp", "shard", "replicate"), 1)
    while size > 1:
        name = numbers.choice(list(degrees))
        if name != "tp" or degrees["tp"] < 4:
            degrees[name] *= 2
            size //= 2
    return degrees


JOBS = [drawn_job(random.Random(f"{size}/{index}"), size) for size in SIZES for index in range(EACH)]


def words(job: Job) -> str:
    """A name for a job."""
    layout = job.layout
    return f"{layout.gpus_used}-tp{layout.tp}-pp{layout.pp}-dp{layout.dp}-{layout.schedule}-m{layout.num_microbatches}"


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS, ids=words)
def test_a_combination_agrees_with_one_process(job: Job, ranks: Ranks) -> None:
    """Losses of three steps and gradients of the first agree to 1e-10."""
    by_loss, by_gradient = apart(ranks(job.layout.gpus_used), job)
    assert by_loss <= TOLERANCE
    assert by_gradient <= TOLERANCE


@pytest.mark.slow
@pytest.mark.parametrize("job", JOBS[::4], ids=words)
def test_a_combination_in_bf16_stays_within_bounds(job: Job, ranks: Ranks) -> None:
    """With bf16 weights in products, fp32 masters and reductions: losses to 1 %, gradients to 5 % of the largest."""
    by_loss, by_gradient = apart(ranks(job.layout.gpus_used), job, precision_of(RECIPE))
    assert by_loss <= BF16_LOSS
    assert by_gradient <= BF16_GRADIENT

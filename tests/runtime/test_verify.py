"""Verifying a plan: what its shape keeps when it shrinks, and whether a fault would be seen."""

import math
import random
from dataclasses import replace

import pytest

from cost_models.schedules import GROUPED, V_SHAPED
from planner.document import Recompute, read
from planner.document.honoured import SCHEDULES
from planner.document.job import Job, job_of
from runtime.errors import TrainingError, UnsupportedPlanError
from runtime.optimizer import Optimizer
from runtime.shrink import MOST_RANKS, shrunk
from runtime.support import check
from runtime.verify import TOLERANCE, verify
from tests.golden.jobs import JOBS
from tests.runtime.jobs import MODELS, small_job, small_model

TIMEOUT_S = 120.0
DEGREES = ("tp", "pp", "vpp", "cp", "dp_shard", "dp_replicate")


def large_job(numbers: random.Random) -> Job:
    """A job of up to a thousand ranks that the runtime honours."""
    while True:
        tp, pp, cp, shard, replicate = (2 ** numbers.randint(0, most) for most in (3, 3, 1, 3, 2))
        schedule = numbers.choice(SCHEDULES) if pp > 1 else "1f1b"
        vpp = 2 if schedule in V_SHAPED else numbers.randint(2, 4) if schedule in GROUPED else 1
        layers = tuple(numbers.randint(0, 6) for _ in range(pp * vpp))
        if sum(layers) < 1 or not min(sum(layers[rank::pp]) for rank in range(pp)):
            continue
        sizes = {"heads": 16, "kv_heads": numbers.choice((1, 2, 8, 16)), "head_dim": 8, "hidden": 128, "ffn": 256}
        model = small_model(sum(layers), **{**numbers.choice(list(MODELS.values())), **sizes})
        job = small_job(
            model,
            tp=tp,
            pp=pp,
            vpp=vpp,
            cp=cp,
            shard=shard,
            replicate=replicate,
            layers=layers,
            schedule=schedule,
            micro_batches=pp * numbers.randint(1, 4) * 2,
            micro_batch_size=numbers.randint(1, 4),
            group_size=pp * numbers.randint(1, 2) if schedule in GROUPED else 0,
            zero=tuple(numbers.choice((1, 2, 3)) for _ in range(pp)),
            reshard=numbers.random() < 0.5,
            recompute=Recompute(set=("norm", "mlp"), layers=1) if numbers.random() < 0.5 else Recompute(),
        )
        try:
            check(job)
        except UnsupportedPlanError:
            continue
        return job


@pytest.mark.parametrize("seed", range(60))
def test_every_kind_of_parallelism_is_still_there_in_some_small_job(seed: int) -> None:
    """At most 8 ranks, each shape one that runs; kinds, levels, schedule and model are kept."""
    job = large_job(random.Random(seed))
    small = shrunk(job)
    for one in small:
        check(one)
        assert one.layout.gpus_used <= MOST_RANKS
        assert one.layout.schedule == job.layout.schedule
        assert one.workload.global_batch == one.layout.global_batch
        assert sum(chunk.layers for stage in one.stages for chunk in stage.chunks) == one.model.layers
        kept = ("gated_mlp", "norm", "positions", "qkv_bias", "tie_embeddings", "qk_norm", "mlp_bias")
        assert all(getattr(one.model, field) == getattr(job.model, field) for field in kept)
        ends = (job.stages[0], job.stages[-1])[: one.layout.pp]
        for stage, end in zip(one.stages, ends, strict=True):
            assert stage.zero_stage == end.zero_stage
            assert stage.reshard_after_forward == end.reshard_after_forward
            held = sum(chunk.layers for chunk in stage.chunks)
            assert bool(stage.recompute.set) == bool(end.recompute.set and held)
    for name in DEGREES:
        assert any((getattr(one.layout, name) > 1) == (getattr(job.layout, name) > 1) for one in small), name
    if job.layout.tp > job.model.kv_heads and any(one.layout.tp > 1 for one in small):
        assert any(one.layout.tp > one.model.kv_heads for one in small)


def test_the_plans_of_the_golden_set_shrink_or_say_why_not() -> None:
    """Those that the runtime honours run on 8 ranks at most."""
    shapes = {}
    for golden in JOBS:
        job = job_of(read(golden.path))
        try:
            check(job)
        except UnsupportedPlanError:
            continue
        shapes[golden.name] = [one.layout.gpus_used for one in shrunk(job)]
    assert {"llama3-8b_8", "gpt3-175b_1024"} <= shapes.keys()
    assert all(max(ranks) <= MOST_RANKS for ranks in shapes.values())


@pytest.mark.slow
def test_a_plan_with_everything_agrees() -> None:
    """Its degrees take two small jobs: with tensor parallelism, and with replicas."""
    model = small_model(8, kv_heads=1, **MODELS["qwen"])
    job = small_job(
        model, tp=4, pp=4, shard=4, replicate=2, zero=(3, 2, 1, 3), reshard=True, schedule="zb-h1", micro_batches=8
    )
    found = verify(job, TIMEOUT_S)
    assert [(one.job.layout.tp, one.job.layout.dp_replicate) for one in found] == [(2, 1), (1, 2)]
    for one in found:
        assert one.holds
        # Exact zeros would mean that nothing was compared.
        assert 0 < one.agreement.gradient <= TOLERANCE
        assert one.agreement.tensor in ("embedding.weight", "final_norm.weight") or "layers." in one.agreement.tensor


def test_gradients_that_are_not_complete_differ(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that keep their own part of a norm's gradient to themselves; one process has no parts."""
    monkeypatch.setattr(Optimizer, "complete_gradients", lambda _: None)
    (found,) = verify(small_job(small_model(2), tp=2), TIMEOUT_S)
    assert not found.holds
    assert found.agreement.gradient > 0.01
    assert found.agreement.tensor.endswith("norm.weight")


def test_a_model_that_ends_in_nan_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither agreement nor a difference."""
    monkeypatch.setattr(Optimizer, "gradient_norm", lambda _: math.nan)
    with pytest.raises(TrainingError, match="the gradient norm of step 0 must be finite, got nan"):
        verify(small_job(small_model(2), tp=2), TIMEOUT_S)


def test_one_process_computes_what_all_are_compared_with(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reference is computed once; the other ranks are sent it."""
    import runtime.verify
    from runtime.agreement import Agreement, alone

    def counted(job: Job) -> object:
        import torch.distributed as dist

        assert dist.get_rank() == 0
        return replace(alone(job), losses=(1.0,) * 3)

    def compared(job: Job, reference: object, precision: object) -> Agreement:
        assert reference.losses == (1.0,) * 3  # type: ignore[attr-defined]
        return Agreement(0.0, 0.0, "none")

    monkeypatch.setattr(runtime.verify, "alone", counted)
    monkeypatch.setattr(runtime.verify, "agreement", compared)
    (found,) = verify(small_job(small_model(2), tp=2), TIMEOUT_S)
    assert found.holds

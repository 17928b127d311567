"""Bytes that ranks hold: as many as a plan says where a backward is split, and no more after a step than before it."""

import gc
from typing import Any

import pytest
import torch

from planner.document.job import Job, job_of
from planner.request import build_request
from planner.trial_plans import trial_plans
from runtime import live_bytes
from runtime.constants import Constants
from runtime.data import Drawn, batch_of
from runtime.initial import Drawn as DrawnWeights
from runtime.loop import Rounds, run
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import fill
from runtime.precision import precision_of
from runtime.rank import build, materialize
from runtime.training import train_step
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import small_job, small_model

MODEL = small_model(hidden=128, ffn=256)
STEPS, SLACK_BYTES = 4, 2**19


def held_after_steps(job: Job) -> tuple[list[int], int]:
    """Bytes that the C library has given out, behind each of some steps of this rank; those of receive buffers left."""
    rank = build(job, precision_of(job.recipe), torch.device("cpu"), Constants())
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, DrawnWeights(job.model, 1, scatter=True))
    optimizer, data = Optimizer(rank, Settings()), Drawn(job.model.vocab, job.workload.seq_len, 1)
    in_use, held = live_bytes._in_use(), []
    for step in range(STEPS):
        train_step(rank, optimizer, batch_of(data, job, rank.groups.data_rank, step), step)
        gc.collect()
        held.append(in_use())
    stages = rank.schedule._stages
    received = [infos for one in stages for infos in (*one.args_recv_info.values(), *one.grad_recv_info.values())]
    buffers = [info.buffer for infos in received for info in infos if info.buffer is not None]
    return held, sum(buffer.nbytes for buffer in buffers if not buffer.is_meta)


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h2", "zb-v", "dualpipe-v"])
def test_a_step_leaves_nothing_behind(schedule: str, ranks: Ranks) -> None:
    """From the second step on ranks hold as much behind each; a micro-batch's activations are a megabyte and more.

    Nothing of what they received is left.
    """
    job = small_job(MODEL, pp=2, schedule=schedule, micro_batches=4, micro_batch_size=16)
    for held, received in ranks(2).run(held_after_steps, job):
        assert max(held[1:]) - min(held[1:]) < SLACK_BYTES, held
        assert received == 0


@pytest.mark.slow
@pytest.mark.parametrize("schedule", ["1f1b", "zb-h2", "zb-v"])
def test_peaks_are_those_that_the_plan_says(schedule: str) -> None:
    """Of the fullest rank of two, for the model of the closed loop, in tensors: within an eighth."""
    request = build_request(
        "data/loop/small-llama.toml",
        2,
        gpu="l4",
        gpus_per_node=2,
        seq_len="256",
        global_batch=8,
        recipe="runtime-cpu",
        target="runtime",
        schedule=schedule,
    ).replaced(fixed={"cp": 1, "pp": 2, "micro_batch_size": 1})
    (trial,) = trial_plans(request, best=1, at_random=0, bad=0, seed=0, runs=lambda _: True)
    records: list[dict[str, Any]] = []
    run([job_of(trial.document)], 2, Rounds(0, 1), lambda: 0.0, records.append, 200.0)
    (record,) = records
    predicted = max(stage.predicted.allocated_bytes for stage in trial.document.stages)
    assert record["peak_bytes"] == pytest.approx(predicted, rel=1 / 8)

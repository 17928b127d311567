"""Forked ranks and what ends them."""

import time
from functools import partial
from typing import Any

import pytest

from runtime.errors import LaunchError, RankFailedError, TrainingError
from runtime.optimizer import Settings
from runtime.run import Options, train
from runtime.world import fork
from tests.runtime.jobs import small_job, small_model
from tests.runtime.work import VICTIM, killed_mid_step, stuck

JOB = small_job(small_model(2), tp=2, pp=2, micro_batches=2)
# Ranks wait for each other at most this long; that all have ended must not take much longer.
TIMEOUT_S, ALLOWED_S = 90.0, 240.0


@pytest.mark.slow
def test_a_rank_that_is_killed_mid_step_ends_all_and_is_named() -> None:
    """The steps before were told; the error names rank and signal, soon after."""
    records: list[dict[str, Any]] = []
    started_s = time.monotonic()
    with pytest.raises(RankFailedError, match=f"rank {VICTIM} of 4 was ended by SIGKILL"):
        fork(4, partial(killed_mid_step, JOB), records.append, TIMEOUT_S, on_gpus=False)
    assert time.monotonic() - started_s < ALLOWED_S
    assert [record["step"] for record in records] == [0, 1]


@pytest.mark.slow
def test_a_rank_that_waits_in_vain_ends_all() -> None:
    """The time limit of a collective is the end of the run."""
    started_s = time.monotonic()
    with pytest.raises(RankFailedError, match="of 4 failed: .*([Tt]imed out|[Tt]imeout)"):
        fork(4, partial(stuck, JOB), print, 5.0, on_gpus=False)
    assert time.monotonic() - started_s < ALLOWED_S


def test_a_loss_that_is_not_finite_ends_the_run() -> None:
    """On every rank, with the step named."""
    options = Options(steps=9, settings=Settings(learning_rate=1e30))
    with pytest.raises(TrainingError, match=r"the loss of step \d must be finite, got nan"):
        fork(4, partial(train, JOB, options), lambda _: None, TIMEOUT_S, on_gpus=False)


def test_fewer_ranks_than_the_plan_has_are_refused() -> None:
    """Both numbers are told."""
    with pytest.raises(LaunchError, match=r"the plan runs on 4 ranks \(parallelism.gpus_used\), got 2"):
        fork(2, partial(train, JOB, Options(steps=1)), print, TIMEOUT_S, on_gpus=False)

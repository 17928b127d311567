"""A model trained on a real text by eight ranks, and by one process."""

from pathlib import Path

import pytest
import torch

from planner.document.job import Job
from runtime.constants import Constants
from runtime.data import batch_of, open_data, whole_batch
from runtime.initial import Drawn
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import fill
from runtime.precision import DOUBLE, Precision, precision_of
from runtime.rank import build, materialize
from runtime.reference import train_alone
from runtime.training import train_step
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import RECIPE, small_job, small_model

TEXT = Path(__file__).resolve().parents[2] / "LICENSE"
SEED = 3
SETTINGS = Settings(learning_rate=3e-3)
BYTE_VALUES = 256


def trained(job: Job, precision: Precision, steps: int) -> list[float]:
    """On a rank: the loss of every step."""
    rank = build(job, precision, torch.device("cpu"), Constants())
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, Drawn(job.model, SEED))
    optimizer, data = Optimizer(rank, SETTINGS), open_data(str(TEXT), job, SEED)
    shares = (batch_of(data, job, rank.groups.data_rank, step) for step in range(steps))
    return [train_step(rank, optimizer, batch, step).loss for step, batch in enumerate(shares)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "steps", "tolerance", "fallen_to"),
    [(DOUBLE, 200, 1e-7, 0.6), (precision_of(RECIPE), 40, 0.02, 0.9)],
    ids=["float64", "bf16"],
)
def test_eight_ranks_follow_the_curve_of_one_process(
    precision: Precision, steps: int, tolerance: float, fallen_to: float, ranks: Ranks
) -> None:
    """TP 2 x PP 2 x FSDP 2, four layers: every loss is that of one process in float64, and they fall.

    AdamW makes rounding grow from step to step: after 200 steps to 2e-9.
    """
    job = small_job(small_model(vocab=BYTE_VALUES), tp=2, pp=2, shard=2, zero=3, reshard=True, micro_batches=2)
    data = open_data(str(TEXT), job, SEED)
    batches = [whole_batch(data, job, step) for step in range(steps)]
    alone = train_alone(job, torch.float64, Drawn(job.model, SEED), batches, SETTINGS, Constants()).losses
    found = ranks(8).run(trained, job, precision, steps)
    assert all(losses == found[0] for losses in found)
    assert found[0] == pytest.approx(alone, rel=tolerance)
    assert sum(found[0][-10:]) < fallen_to * sum(found[0][:10])

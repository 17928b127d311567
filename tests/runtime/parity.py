"""A job trained by its ranks and by one process, and how far they are apart."""

from typing import Any

import torch

from runtime.constants import Constants
from runtime.initial import Drawn
from runtime.job import Job
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import fill
from runtime.precision import DOUBLE, Precision
from runtime.rank import build, materialize
from runtime.reference import Reference, deviation, share, train_alone
from runtime.training import Batch, backward
from tests.runtime.jobs import SEQ_LEN
from tests.runtime.pool import Pool

STEPS = 3
SETTINGS = Settings(learning_rate=1e-2)
CONSTANTS = Constants()


def batches(job: Job) -> list[Batch]:
    """Whole batches of random tokens."""
    generator = torch.Generator().manual_seed(7)
    drawn = [
        torch.randint(job.model.vocab, (job.layout.global_batch, SEQ_LEN + 1), generator=generator)
        for _ in range(STEPS)
    ]
    return [Batch(tokens[:, :-1], tokens[:, 1:]) for tokens in drawn]


def alone(job: Job) -> Reference:
    """What one process finds in float64."""
    source = Drawn(job.model, seed=1, scatter=True)
    return train_alone(job, torch.float64, source, batches(job), SETTINGS, CONSTANTS)


def train(job: Job, reference: Reference, precision: Precision) -> tuple[list[float], float, list[float]]:
    """On a rank: losses, the largest deviation of a gradient of the first step, and gradient norms."""
    rank = build(job, precision, torch.device("cpu"), CONSTANTS)
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, Drawn(job.model, seed=1, scatter=True))
    optimizer = Optimizer(rank, SETTINGS)
    losses, norms, worst = [], [], 0.0
    for step, batch in enumerate(batches(job)):
        losses.append(backward(rank, share(batch, rank)))
        optimizer.complete_gradients()
        if not step:
            worst = max(deviation(rank, reference.gradients).values(), default=0.0)
        norms.append(optimizer.step())
    return losses, worst, norms


def apart(pool: Pool, job: Job, precision: Precision = DOUBLE) -> tuple[float, float]:
    """The largest relative difference of a loss of some steps, and of a gradient of the first."""
    reference = alone(job)
    answers: list[Any] = pool.run(train, job, reference, precision)
    by_loss = max(
        abs(loss - expected) / expected
        for losses, _, _ in answers
        for loss, expected in zip(losses, reference.losses, strict=True)
    )
    return by_loss, max(worst for _, worst, _ in answers)

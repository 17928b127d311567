"""Whether the ranks of a job train as one process does: losses of some steps, gradients of the first."""

import math
from dataclasses import dataclass

import torch

from planner.document.job import Job
from runtime.constants import Constants
from runtime.data import Drawn as DrawnTokens
from runtime.data import batch_of, whole_batch
from runtime.initial import Drawn
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import fill
from runtime.precision import Precision
from runtime.rank import build, materialize
from runtime.reference import Reference, deviation, train_alone, worse
from runtime.training import backward

__all__ = ["STEPS", "Agreement", "agreement", "alone"]

STEPS, SEED = 3, 1
# A rate at which three steps move the loss visibly.
SETTINGS = Settings(learning_rate=1e-2)


@dataclass(frozen=True)
class Agreement:
    """How far apart the two are, relative to one process."""

    loss: float
    """Largest difference of the loss of a step."""
    gradient: float
    """Largest difference of a gradient of the first step, over the largest of its tensor."""
    tensor: str
    """The full tensor whose gradient it is."""


def alone(job: Job) -> Reference:
    """What one process finds in float64, on drawn tokens and weights."""
    data = DrawnTokens(job.model.vocab, job.workload.seq_len, SEED)
    batches = [whole_batch(data, job, step) for step in range(STEPS)]
    return train_alone(job, torch.float64, _weights(job), batches, SETTINGS, Constants())


def agreement(job: Job, reference: Reference, precision: Precision) -> Agreement:
    """What this rank of the job finds, compared. Every rank of the world must call it."""
    rank = build(job, precision, torch.device("cpu"), Constants())
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, _weights(job))
    optimizer = Optimizer(rank, SETTINGS)
    data = DrawnTokens(job.model.vocab, job.workload.seq_len, SEED)
    by_loss, by_gradient = 0.0, {"none": 0.0}
    for step, expected in enumerate(reference.losses):
        loss = backward(rank, batch_of(data, job, rank.groups.data_rank, step)).mean
        by_loss = worse(by_loss, abs(loss - expected) / expected)
        optimizer.complete_gradients()
        if not step:
            by_gradient |= deviation(rank, reference.gradients)
        optimizer.step(step)
    worst = next((name for name, one in by_gradient.items() if math.isnan(one)), None) or max(
        by_gradient, key=by_gradient.__getitem__
    )
    return Agreement(by_loss, by_gradient[worst], worst)


def _weights(job: Job) -> Drawn:
    return Drawn(job.model, SEED, scatter=True)

"""A step whose loss or gradients are not finite stops before a weight is touched."""

import math
from collections.abc import Callable, Sequence

import pytest
import torch
import torch.distributed as dist

from planner.document.job import Job
from runtime.constants import Constants
from runtime.data import Drawn as DrawnTokens
from runtime.data import batch_of
from runtime.errors import TrainingError
from runtime.finite import in_words
from runtime.initial import Drawn
from runtime.optimizer import Optimizer, Settings
from runtime.parameters import fill, local_part
from runtime.precision import DOUBLE
from runtime.rank import Rank, build, materialize
from runtime.training import train_step
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import small_job, small_model

STEP = 7
Poison = Callable[[Rank, float, Sequence[int]], None]


def poison_gradients(rank: Rank, value: float, victims: Sequence[int]) -> None:
    """Puts a value in the largest gradient of some ranks, which no other rank shares, behind the backward."""
    run = rank.schedule.step

    def poisoned(*arguments: object, **options: object) -> object:
        result = run(*arguments, **options)
        if dist.get_rank() in victims:
            gradients = [one.grad for chunk in rank.chunks for one in chunk.parameters() if one.grad is not None]
            local_part(max(gradients, key=torch.numel))[-1] = value
        return result

    rank.schedule.step = poisoned  # type: ignore[method-assign]


def poison_losses(rank: Rank, value: float, victims: Sequence[int]) -> None:
    """Adds a value to the losses of some ranks."""
    loss = rank.schedule._loss_fn

    def poisoned(*arguments: torch.Tensor) -> torch.Tensor:
        return loss(*arguments) + (value if dist.get_rank() in victims else 0.0)

    rank.schedule._loss_fn = poisoned


def stepped(job: Job, poison: Poison, value: float, victims: Sequence[int]) -> tuple[str, bool]:
    """On a rank: what a poisoned step raises, and whether it left every weight as it was."""
    rank = build(job, DOUBLE, torch.device("cpu"), Constants())
    materialize(rank)
    for chunk in rank.chunks:
        fill(chunk, Drawn(job.model, 1))
    poison(rank, value, victims)
    optimizer = Optimizer(rank, Settings())
    batch = batch_of(DrawnTokens(job.model.vocab, job.workload.seq_len, 1), job, rank.groups.data_rank, 0)
    before = [local_part(one).clone() for chunk in rank.chunks for one in chunk.parameters()]
    try:
        train_step(rank, optimizer, batch, STEP)
        told = "nothing"
    except TrainingError as error:
        told = str(error)
    after = [local_part(one) for chunk in rank.chunks for one in chunk.parameters()]
    return told, all(torch.equal(one, other) for one, other in zip(before, after, strict=True))


@pytest.mark.parametrize(
    ("poison", "value", "victims", "told"),
    [
        (poison_gradients, math.inf, (3,), "the gradient norm of step 7 must be finite, got inf: gradients on rank 3"),
        (
            poison_gradients,
            math.nan,
            (0, 2),
            "the gradient norm of step 7 must be finite, got nan: gradients on ranks 0, 2",
        ),
        (poison_gradients, -math.inf, (0, 1, 2, 3), "gradients on ranks 0-3"),
        (poison_gradients, 1e200, (1,), "got inf: each gradient is, the sum of squares is not"),
        (poison_losses, math.nan, (2,), "the loss of step 7 must be finite, got nan: that on rank 2 is not"),
        (poison_losses, math.inf, (2, 3), "the loss of step 7 must be finite, got inf: that on ranks 2-3 is not"),
    ],
)
def test_a_step_that_is_not_finite_touches_no_weight_and_names_the_ranks(
    poison: Poison, value: float, victims: Sequence[int], told: str, ranks: Ranks
) -> None:
    """All ranks stop alike; the head is on ranks 2 and 3."""
    found = ranks(4).run(stepped, small_job(small_model(2), tp=2, pp=2), poison, value, victims)
    assert len({message for message, _ in found}) == 1
    assert told in found[0][0]
    assert found[0][0].endswith("the weights are those before it")
    assert all(untouched for _, untouched in found)


@pytest.mark.parametrize(
    ("ranks_", "words"),
    [([3], "rank 3"), ([0, 1], "ranks 0-1"), ([8, 0, 1, 2, 5], "ranks 0-2, 5, 8"), ([], "no rank")],
)
def test_ranks_are_told_in_runs(ranks_: list[int], words: str) -> None:
    """A job has thousands of them."""
    assert in_words(ranks_) == words

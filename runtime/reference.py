"""The same training in one process, without collectives, pipeline or sharding: what a plan's ranks must agree with."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from planner.document.job import Job
from runtime.chunk import Chunk, whole_chunk
from runtime.constants import Constants
from runtime.groups import TensorParallel
from runtime.loss import loss_function
from runtime.optimizer import Settings
from runtime.parameters import Source, fill, held, local_part
from runtime.rank import Rank
from runtime.training import Batch

__all__ = ["Reference", "deviation", "train_alone", "whole", "worse"]

# Of the largest gradient of the model: what is smaller is rounding.
LEAST_SCALE = 1e-4


@dataclass(frozen=True)
class Reference:
    """What one process found."""

    losses: tuple[float, ...]
    """Of each step."""
    gradients: Mapping[str, Tensor]
    """Of the first step, by full tensor."""


def train_alone(
    job: Job, dtype: torch.dtype, source: Source, batches: Sequence[Batch], settings: Settings, constants: Constants
) -> Reference:
    """Losses and gradients of a job in one process; `batches` are the whole batches of its steps."""
    chunk = whole(job, dtype, source, constants)
    parameters = list(chunk.parameters())
    adamw = torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )
    loss_of = loss_function(job.model.vocab, TensorParallel(), 1)
    losses: list[float] = []
    gradients: dict[str, Tensor] = {}
    for batch in batches:
        adamw.zero_grad()
        loss = loss_of(chunk(batch.tokens), batch.targets)
        loss.backward()
        losses.append(loss.item())
        gradients = gradients or _by_name(chunk)
        _limit(parameters, settings.largest_norm)
        adamw.step()
    return Reference(tuple(losses), gradients)


def whole(job: Job, dtype: torch.dtype, source: Source, constants: Constants) -> Chunk:
    """The model of a job in one piece, filled."""
    chunk = whole_chunk(job, constants).to(dtype)
    fill(chunk, source)
    return chunk


def deviation(rank: Rank, gradients: Mapping[str, Tensor]) -> dict[str, float]:
    """The largest difference of each gradient on this rank from the reference's, over the reference's largest value.

    A gradient that is zero but for rounding, as that of a bias on keys is, is measured against the others'.
    """
    smallest_scale = LEAST_SCALE * max(float(gradient.abs().max()) for gradient in gradients.values())
    found: dict[str, float] = {}
    for chunk in rank.chunks:
        for one in held(chunk):
            assert one.parameter.grad is not None
            gradient = local_part(one.parameter.grad)
            for piece, here in one.here():
                rows = one.full_rows(piece, here)
                columns = piece.columns
                expected = gradients[piece.name][rows.start : rows.stop]
                if columns is not None:
                    expected = expected[:, columns.start : columns.stop]
                scale = max(float(gradients[piece.name].abs().max()), smallest_scale)
                difference = (gradient[here.start : here.stop] - expected.to(gradient)).abs().max()
                found[piece.name] = worse(found.get(piece.name, 0.0), float(difference) / scale)
    return found


def worse(one: float, other: float) -> float:
    """The larger of two differences; nan, which `max` may drop, is larger than any number."""
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)


def _by_name(chunk: Chunk) -> dict[str, Tensor]:
    """Gradients of full tensors: in one process every piece is one."""
    found: dict[str, Tensor] = {}
    for one in held(chunk):
        assert one.parameter.grad is not None
        for piece, here in one.here():
            found[piece.name] = one.parameter.grad[here.start : here.stop].clone()
    return found


def _limit(parameters: Sequence[nn.Parameter], largest_norm: float) -> None:
    """Scales gradients down to a norm."""
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
    norm = float(torch.nn.utils.get_total_norm(gradients))
    for gradient in gradients if norm > largest_norm else ():
        gradient.mul_(largest_norm / norm)

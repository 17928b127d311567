"""The optimizer step of one rank: gradients made whole, their norm over the job, AdamW on what the rank owns."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn

from runtime.errors import TrainingError
from runtime.finite import in_words, ranks_without
from runtime.parameters import Held, Shared, held, local_part, shared_rows
from runtime.rank import Rank
from runtime.tied import Tied

__all__ = ["UNTOUCHED", "Optimizer", "Settings", "adamw_of", "scale", "square_sum"]


@dataclass(frozen=True)
class Settings:
    """AdamW as large models are trained with it, without a schedule of the rate."""

    learning_rate: float = 3e-4
    betas: tuple[float, float] = (0.9, 0.95)
    epsilon: float = 1e-8
    weight_decay: float = 0.1
    largest_norm: float = 1.0
    """Gradients of a larger norm are scaled down to it."""


# Nothing of a step that went wrong is kept.
UNTOUCHED = "the weights are those before it"


class Optimizer:
    """Steps the parameters of a rank."""

    def __init__(self, rank: Rank, settings: Settings) -> None:
        self.settings = settings
        self._rank = rank
        self._held = [one for chunk in rank.chunks for one in held(chunk)]
        self._tied = Tied(rank)
        self._adamw = adamw_of([one.parameter for one in self._held], settings)

    def complete_gradients(self) -> None:
        """Adds up what other ranks know of gradients of parameters that they hold too; once a step, before the rest."""
        tensor = self._rank.groups.tensor
        if tensor.group is not None:
            _sum_in_one_go(list(self._shared_gradients("tensor")), tensor.group)
        if tensor.copies_group is not None:
            _sum_in_one_go(list(self._shared_gradients("copies")), tensor.copies_group)
        self._tied.sum_gradients()

    def step(self, number: int) -> float:
        """The norm of all gradients of the job, before it is limited; the parameters are stepped and gradients freed.

        Every rank must call it. Raises TrainingError, on all ranks and with the parameters as they were, when the norm
        is not finite.
        """
        norm = self.gradient_norm()
        if not math.isfinite(norm):
            raise TrainingError(self._not_finite(number, norm))
        if norm > self.settings.largest_norm:
            gradients = [one.parameter.grad for one in self._held if one.parameter.grad is not None]
            scale(gradients, self.settings.largest_norm / norm)
        self._adamw.step()
        self._adamw.zero_grad(set_to_none=True)
        return norm

    def gradient_norm(self) -> float:
        """The 2-norm of the gradients of all parameters of the model, each counted once."""
        total = torch.zeros((), dtype=torch.float64, device=self._rank.device)
        for one in self._held:
            if one.parameter.grad is not None and not self._tied.is_second(one):
                total += _squares(one) / self._rank.groups.holders(one.parameter)
        dist.all_reduce(total)
        return float(total.sqrt())

    @property
    def moment_bytes(self) -> int:
        """Of both moments of what this rank steps; none before the first step."""
        moments = (state[name] for state in self._adamw.state.values() for name in ("exp_avg", "exp_avg_sq"))
        return sum(local_part(one).nbytes for one in moments)

    def _not_finite(self, number: int, norm: float) -> str:
        gradients = [local_part(one.parameter.grad) for one in self._held if one.parameter.grad is not None]
        ranks = ranks_without(all(bool(part.isfinite().all()) for part in gradients), self._rank.device)
        where = f"gradients on {in_words(ranks)} are not" if ranks else "each gradient is, the sum of squares is not"
        return f"the gradient norm of step {number} must be finite, got {norm}: {where}; {UNTOUCHED}"

    def _shared_gradients(self, kind: Shared) -> Iterator[Tensor]:
        """Rows of gradients of which each rank of a group has a part."""
        for parameter, rows in shared_rows(self._held, kind):
            if parameter.grad is not None:
                yield local_part(parameter.grad)[rows.start : rows.stop]


def adamw_of(parameters: list[nn.Parameter], settings: Settings) -> torch.optim.AdamW:
    """The optimizer of some parameters."""
    return torch.optim.AdamW(
        parameters,
        lr=settings.learning_rate,
        betas=settings.betas,
        eps=settings.epsilon,
        weight_decay=settings.weight_decay,
    )


def scale(gradients: list[Tensor], factor: float) -> None:
    """Multiplies what this rank holds of some gradients by a factor."""
    for gradient in gradients:
        local_part(gradient).mul_(factor)


def square_sum(gradient: Tensor) -> Tensor:
    """The sum of the squares of a gradient, in fp64."""
    return gradient.double().square().sum()


def _sum_in_one_go(parts: list[Tensor], group: dist.ProcessGroup) -> None:
    """Sums every tensor over a group, all of them in one collective."""
    if not parts:
        return
    joined = torch.cat([part.flatten() for part in parts])
    dist.all_reduce(joined, group=group)
    for part, total in zip(parts, joined.split([part.numel() for part in parts]), strict=True):
        part.copy_(total.view_as(part))


def _squares(one: Held) -> Tensor:
    """The sum of the squares of a gradient's local rows, those that other ranks hold too shared out among them."""
    assert one.parameter.grad is not None
    gradient = local_part(one.parameter.grad)
    total = torch.zeros((), dtype=torch.float64, device=gradient.device)
    for piece, rows in one.here():
        total += square_sum(gradient[rows.start : rows.stop]) / piece.copies
    return total

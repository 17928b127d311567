"""The data types of a run: parameters as they are stored, computed with, and reduced."""

from dataclasses import dataclass

import torch

from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["DOUBLE", "Precision", "precision_of"]


@dataclass(frozen=True)
class Precision:
    """Data types."""

    stored: torch.dtype
    """Of the parameters that the optimizer steps, of its moments and of the gradients it reads."""
    compute: torch.dtype
    """Of weights in products and of activations."""
    reduce: torch.dtype
    """Of gradients where they pile up and on the wire."""


DOUBLE = Precision(torch.float64, torch.float64, torch.float64)

_BY_BYTES = {2: torch.bfloat16, 4: torch.float32}


def precision_of(recipe: FrameworkRecipe) -> Precision:
    """The data types of a recipe's byte layout; `support.check` has seen that it has them."""
    stored = recipe.master_bytes or recipe.weight_bytes
    return Precision(
        stored=_BY_BYTES[int(stored)], compute=torch.bfloat16, reduce=_BY_BYTES[int(recipe.gradient_reduce_bytes)]
    )

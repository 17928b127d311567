"""What a device holds beside the bytes allocated: blocks that serve nothing again, communicators, context."""

from typing import Any

from cost_models import symbols as sym
from cost_models.blocks import ZERO
from cost_models.operators import maximum
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["overheads", "stranded_bytes", "with_overheads"]

Expr = Any


def stranded_bytes(recipe: FrameworkRecipe, kept: Expr, workspace: Expr, loss: Expr, optimizer: Expr) -> Expr:
    """Bytes reserved beside those of the fullest phase: `kept` and `workspace` or `loss` of the passes, or `optimizer`.

    A caching allocator never joins blocks that it obtained one by one: a tensor larger than any before it needs a block
    of its own, whatever lies free. So where segments do not grow, the optimizer's copies find room in the blocks of the
    logits alone; and in the loss the logits' own block, half as wide as their fp32 copies, serves nothing after them.
    """
    stranded: Expr = ZERO
    if not recipe.growing_segments:
        fullest = maximum(kept + maximum(workspace, loss), optimizer)
        stranded += kept + maximum(loss, workspace + optimizer) - fullest
    if recipe.stranded_logit_bytes and recipe.loss_bytes_per_logit:
        stranded += recipe.stranded_logit_bytes / recipe.loss_bytes_per_logit * loss
    return stranded


def overheads(allocated: Expr, stranded: Expr, recipe: FrameworkRecipe, context_bytes: float) -> dict[str, Expr]:
    """Bytes that no tensor shows beside those allocated: communicator buffers, device context, fragmentation."""
    return {
        "communicators": recipe.communicator_bytes * sym.communicators,
        "context": context_bytes + recipe.kernel_bytes,
        "fragmentation": recipe.fragmentation_fraction * allocated + stranded,
    }


def with_overheads(
    causes: dict[str, Expr], allocated: Expr, stranded: Expr, recipe: FrameworkRecipe, context_bytes: float
) -> dict[str, Expr]:
    """The causes with what no tensor shows, and the totals."""
    added = overheads(allocated, stranded, recipe, context_bytes)
    return {
        **causes,
        **added,
        "allocated_bytes": allocated,
        "stranded_bytes": stranded,
        "reserved_bytes": allocated + added["fragmentation"],
        "device_bytes": allocated + sum(added.values()),
    }

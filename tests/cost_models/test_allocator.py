"""Blocks that one phase leaves free and another cannot use."""

import numpy as np
import pytest
from sympy import Symbol

from cost_models.allocator import overheads, stranded_bytes
from cost_models.specs.recipe import FrameworkRecipe
from tests.cost_models.setting import lower_whole

GROWING = FrameworkRecipe(name="growing")
FIXED = FrameworkRecipe(name="fixed", growing_segments=False)
PHASES = ("kept", "workspace", "loss", "optimizer")


def stranded(recipe, *sizes):
    """Bytes that are stranded, of phases with these sizes, numbers or arrays."""
    symbols = [Symbol(name, nonnegative=True) for name in PHASES]
    lowered = lower_whole({"bytes": stranded_bytes(recipe, *symbols)}, {})
    return lowered(dict(zip(PHASES, np.asarray(sizes, dtype=np.float64), strict=True)))["bytes"]


def test_segments_that_grow_strand_nothing():
    """Every phase finds what the others left."""
    assert stranded(GROWING, 10, 3, 5, 4) == 0


@pytest.mark.parametrize(
    ("kept", "workspace", "loss", "optimizer", "bytes_"),
    [
        (10, 3, 0, 4, 4),  # beside activations and workspace the optimizer's copy needs a block of its own
        (10, 3, 9, 4, 0),  # the logits' blocks serve it
        (10, 3, 5, 4, 2),  # in part
        (1, 3, 0, 9, 4),  # the optimizer is the fullest phase: the passes' blocks are left over
    ],
)
def test_fixed_segments_serve_large_copies_from_the_logits_alone(kept, workspace, loss, optimizer, bytes_):
    """What is reserved is what is kept, and the larger of the loss and of workspace and copies together."""
    assert stranded(FIXED, kept, workspace, loss, optimizer) == bytes_


def test_reserved_bytes_never_fall_with_a_phase():
    """A phase that needs more never leaves less reserved."""

    def reserved(sizes):
        kept, workspace, loss, optimizer = sizes
        fullest = np.maximum(kept + np.maximum(workspace, loss), optimizer)
        return fullest + stranded(FIXED, *sizes)

    sizes = np.random.default_rng(0).integers(0, 12, (4, 500)).astype(np.float64)
    for phase in range(4):
        assert np.all(reserved(sizes + (np.arange(4) == phase)[:, None]) >= reserved(sizes))


def test_the_logits_own_block_is_stranded():
    """Two bytes a logit of twelve are a sixth of the loss; none where the loss is chunked."""
    eager = FrameworkRecipe(name="eager", loss_bytes_per_logit=12, stranded_logit_bytes=2)
    assert stranded(eager, 1, 1, 60, 0) == pytest.approx(10)
    chunked = eager.replaced(loss_bytes_per_logit=0)
    assert stranded(chunked, 1, 1, 0, 0) == 0


def test_kernels_add_to_the_context():
    """Code that libraries load at once lies beside the profile's context; what is stranded counts as fragmented."""
    recipe = FrameworkRecipe(name="eager", kernel_bytes=7, fragmentation_fraction=0.5)
    added = overheads(allocated=10, stranded=3, recipe=recipe, context_bytes=2)
    assert added["context"] == 9
    assert added["fragmentation"] == 8

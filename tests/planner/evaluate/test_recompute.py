"""Recompute cells."""

import pytest

from planner.evaluate.errors import UnsupportedRunError
from planner.evaluate.recompute import Recompute, read_recompute


@pytest.mark.parametrize(
    ("text", "modules"),
    [
        ("", ()),
        ("none", ()),
        ("full", ("full",)),
        ("selective", ("core_attention",)),
        ("selective:moe_act+layernorm", ("activation", "norm")),
        ("mla_up_proj+mlp", ("mla_up_proj", "mlp")),
    ],
)
def test_cells_name_modules(text, modules):
    """Names of launchers become the vocabulary's, in one order."""
    assert read_recompute(text) == Recompute(tuple((module, 1.0) for module in modules))


def test_policies_are_shares():
    """Every second product, every second layer, some layers of a chunk."""
    assert dict(read_recompute("selective:op").shares)["mlp"] == 0.5
    assert read_recompute("selective:every-Nth-layer").share == 0.5
    assert read_recompute("full:5 layers per PP chunk (block)").per_chunk == 5
    with pytest.raises(UnsupportedRunError, match="embedding"):
        read_recompute("selective:embedding")

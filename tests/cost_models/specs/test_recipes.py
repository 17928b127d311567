"""The catalog's recipes."""

import pytest

from cost_models.specs.catalog import load_recipe, names
from cost_models.specs.recipe import FrameworkRecipe

TOLD = {"name", "sources"}


@pytest.mark.parametrize("name", names("frameworks"))
def test_every_departure_from_the_defaults_has_a_source(name):
    """A recipe is called what its file is called, and says where each figure that is not the default comes from."""
    recipe = load_recipe(name)
    assert recipe.name == name
    defaults = FrameworkRecipe(name=name)
    departs = {field for field in FrameworkRecipe.model_fields if getattr(recipe, field) != getattr(defaults, field)}
    assert departs - TOLD <= set(recipe.sources)
    assert set(recipe.sources) <= set(FrameworkRecipe.model_fields)


def test_bytes_per_parameter_are_those_that_frameworks_print():
    """States of one parameter, unsharded: Megatron 18, bf16 gradients 16, FSDP in fp32 16, pure bf16 8."""
    states = ("weight_bytes", "gradient_bytes", "master_bytes", "moment_bytes")
    totals = {name: sum(getattr(load_recipe(name), field) for field in states) for name in names("frameworks")}
    expected = {"megatron": 18, "nemo": 16, "torchtitan": 16, "llm-foundry": 16, "deepspeed": 16, "torchtune": 8}
    assert {name: totals[name] for name in expected} == expected

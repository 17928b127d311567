"""Lowered expressions are shared by what they are written from, and bound anew for every device."""

import pytest

from cost_models import lowered_costs
from cost_models.lower import lower
from cost_models.lowered import rebound
from cost_models.lowered_costs import lowered_exchange, lowered_micro_batch, lowered_stage, structure
from cost_models.specs.catalog import load_model, load_recipe
from cost_models.stage import micro_batch_costs
from tests.cost_models.setting import MODELS, RECIPES, functions, random_columns

MEGATRON = load_recipe("megatron")


def test_models_that_differ_in_sizes_share_one():
    """Widths, layers and vocabulary do not matter; gates, windows, experts and how layers repeat do."""
    small, large = load_model("llama3-8b"), load_model("llama3-70b")
    assert structure(small) == structure(large)
    assert lowered_micro_batch(small, MEGATRON) is lowered_micro_batch(large, MEGATRON)
    assert lowered_exchange(small, MEGATRON) is lowered_exchange(large, MEGATRON)
    others = [small.replaced(gated_mlp=False), small.replaced(sliding_window=4096), load_model("mixtral-8x7b")]
    assert len({structure(model) for model in (small, *others)}) == 4


def test_recipes_share_one_whatever_they_are_called():
    """Names and sources of a recipe do not matter, its figures do."""
    model = load_model("llama3-8b")
    renamed = MEGATRON.replaced(name="mine", sources={})
    assert lowered_micro_batch(model, renamed) is lowered_micro_batch(model, MEGATRON)
    for changes in ({"gradient_bytes": 2}, {"overlap_tensor_parallel": True}):
        other = lowered_stage(model, MEGATRON.replaced(**changes), 0.0, offload=False, outputs=())
        assert other is not lowered_stage(model, MEGATRON, 0.0, offload=False, outputs=())


@pytest.mark.parametrize("model_name", ["llama", "latent"])
def test_a_rebound_expression_equals_one_lowered_for_the_device(model_name):
    """Binding a shared expression to a device gives what lowering it there gives."""
    model, recipe = MODELS[model_name], RECIPES["megatron"]
    columns = random_columns(model, 20, seed=5)
    bound = functions(recipe)
    there = lower(micro_batch_costs(model, recipe), bound)(columns)
    here = rebound(lowered_micro_batch(model, recipe), bound)(columns)
    for name, values in there.items():
        assert here[name] == pytest.approx(values, rel=1e-12), name


def test_an_unbound_expression_says_so():
    """Nothing is computed before a device is bound."""
    model = MODELS["llama"]
    with pytest.raises(TypeError, match="not bound"):
        lowered_costs.lowered_micro_batch(model, RECIPES["megatron"])(random_columns(model, 2, seed=6))

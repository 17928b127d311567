"""Recipes of rows."""

import pytest

from cost_models.specs.catalog import load_recipe
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError
from planner.evaluate.frameworks import FRAMEWORKS, recipe_of


@pytest.mark.parametrize("phrase", [phrase for phrase, _ in FRAMEWORKS])
def test_every_framework_has_a_recipe(phrase):
    """Each phrase leads to an entry of the catalog."""
    assert recipe_of(Cells({"framework": phrase.upper()})).name


@pytest.mark.parametrize(
    ("row", "name"),
    [
        ({"framework": "Megatron-Bridge 25.11"}, "megatron-bridge-2025"),
        ({"framework": "Megatron-Bridge 26.04.01"}, "megatron-bridge"),
        ({"framework": "Megatron-Bridge 26.08"}, "megatron-bridge-graphs"),
        ({"framework": "torchtitan 2024-12", "notes": "torch.compile"}, "torchtitan"),
        ({"framework": "torchtitan 2024-12", "notes": "eager"}, "torchtitan-eager"),
        ({"framework": "Megatron-DeepSpeed", "precision": "bf16"}, "megatron-deepspeed-bf16"),
        ({"framework": "llm-foundry/Composer FSDP", "precision": "bf16-pure"}, "llm-foundry-pure"),
        ({"framework": "HF Trainer", "zero_or_fsdp": "zero2"}, "deepspeed"),
        ({"framework": "HF Trainer", "zero_or_fsdp": "fsdp"}, "trainer"),
        ({"framework": "nobody's"}, "megatron"),
        ({"framework": "nobody's", "precision": "fp16", "gpu": "A100"}, "megatron-2021"),
        ({"gpu": "Tesla V100-SXM2-32GB"}, "megatron-2021"),
        ({"precision": "fp8", "gpu": "H100"}, "nemo"),
        ({"gpu": "GB200"}, "nemo"),
        ({"precision": "fp8", "gpu": "H100", "zero_or_fsdp": "FULL_SHARD"}, "trainer"),
        ({"framework": "torchtitan", "recipe": "deepspeed"}, "deepspeed"),
    ],
)
def test_generations_have_recipes_of_their_own(row, name):
    """Release, compilation and precision choose among a framework's recipes; a named recipe comes first."""
    assert recipe_of(Cells(row)).name == name


def test_the_row_changes_its_recipe():
    """What a row says of attention, dispatcher, graphs and overlap holds over its recipe."""
    notes = "dispatcher=deepep; cuda_graph=full_iteration; all TP/PP/DP overlap disabled; chunked CE"
    recipe = recipe_of(Cells({"framework": "NeMo", "attention_impl": "unfused (no flash)", "notes": notes}))
    assert not recipe.flash_attention
    assert recipe.expert_dispatcher == "deduplicated"
    assert recipe.cuda_graphs
    assert not recipe.overlap_gradient_reduce
    assert not recipe.overlap_tensor_parallel
    assert recipe.loss_bytes_per_logit == 0
    plain = recipe_of(Cells({"framework": "NeMo", "attention_impl": "TE/cuDNN flash"}))
    assert plain == load_recipe("nemo")


def test_an_unknown_recipe_is_invalid():
    """A recipe that the catalog lacks names what there is."""
    with pytest.raises(InvalidRunError, match="unknown framework"):
        recipe_of(Cells({"recipe": "none such"}))


def test_compiled_modules_are_fused():
    """Where a row says that it compiles, norms, activations and positions of an eager recipe are fused."""
    eager, compiled = (recipe_of(Cells({"framework": "torchtune", "notes": text})) for text in ("packed", "+compile"))
    assert not eager.fused_norm
    assert compiled.fused_norm
    assert compiled.fused_activation
    assert compiled.fused_rope
    without = recipe_of(Cells({"framework": "torchtune", "notes": "without compile"}))
    assert not without.fused_norm


def test_weights_gathered_in_fp8_are_half_as_many_bytes():
    """float8 all-gather moves one byte a parameter instead of two."""
    notes = "torch.compile; float8 all-gather"
    assert recipe_of(Cells({"framework": "torchtitan", "notes": notes})).parameter_gather_bytes == 1
    assert recipe_of(Cells({"framework": "torchtitan", "notes": "torch.compile"})).parameter_gather_bytes == 2


def test_a_sharded_loss_holds_more_of_each_logit():
    """torchtitan's loss on logits sharded by tensor parallelism holds 16 bytes of each, without it 12."""
    row = {"framework": "torchtitan 2024-12", "notes": "torch.compile"}
    assert recipe_of(Cells(row)).loss_bytes_per_logit == 12
    assert recipe_of(Cells({**row, "tp": "8"})).loss_bytes_per_logit == 16

"""What the constants of a long run do to seconds."""

import pytest

from cost_models import kernels
from cost_models import symbols as sym
from cost_models.exchange import backward_s, last_s
from cost_models.mlp import expert_block
from cost_models.specs.catalog import load_gpu, load_model, load_profile, load_recipe
from tests.cost_models.test_recipe_features import layer

GPU, PROFILE, RECIPE = load_gpu("h100-sxm"), load_profile("h100-sxm"), load_recipe("megatron")
SIZES = (8192.0, 8192.0, 8192.0)


def seconds(nodes=1, **changes):
    """Of one large product."""
    bodies = kernels.bind(GPU, PROFILE, RECIPE.replaced(**changes), "bf16", nodes)
    return float(bodies["gemm_forward_s"](*SIZES)) - PROFILE.gemm["bf16"].launch_s


def test_every_doubling_of_the_nodes_waits_a_little_longer():
    """Products on 2^k nodes take 1 + k times the straggling longer; one node waits for nobody."""
    straggling = PROFILE.straggling_per_doubling
    assert straggling > 0
    for doublings in (0, 1, 5, 11):
        assert seconds(2**doublings) == pytest.approx(seconds() * (1 + doublings * straggling))


def test_tuned_recipes_are_faster_by_their_rate():
    """A recipe's rate divides the seconds of products."""
    assert seconds(tuned_rate=1.04) == pytest.approx(seconds() / 1.04)
    assert load_recipe("nemo").tuned_rate > load_recipe("megatron").tuned_rate == 1.0


def test_unaligned_heads_are_slow_without_flash_attention():
    """Heads whose width is no multiple of 8 take longer than wider ones that are, and fused attention does not mind."""
    unfused = {"flash_attention": False}
    odd, even = (layer(recipe_changes=unfused, head_dim=width)["layer_forward_s"] for width in (108, 112))
    assert odd > even
    fused_odd, fused_even = (layer(head_dim=width)["layer_forward_s"] for width in (108, 112))
    assert fused_odd < fused_even


def test_sharded_gradients_may_wait_for_the_last_micro_batch():
    """A recipe that reduces once a step exchanges no gradients in its micro-batches, but after the last."""
    model, reduce_s = load_model("llama3-8b"), sym.PARTS["layer_reduce_s"]
    for name, at_once in (("deepspeed", True), ("llama3", False)):
        recipe = load_recipe(name)
        assert (reduce_s in backward_s(model, recipe).free_symbols) == at_once
        assert reduce_s in last_s(model, recipe).free_symbols


def test_gates_behind_biases_are_a_chain_of_kernels():
    """Experts with biases (GPT-OSS) take longer for their activation than fused ones, and keep as much."""
    model = load_model("gpt-oss-20b")
    chain, fused = (
        next(operator for operator in expert_block(model, recipe) if operator.name == "expert activation")
        for recipe in (RECIPE, RECIPE.replaced(fused_biased_activation=True))
    )
    assert chain.kernels > fused.kernels
    assert chain.saved == fused.saved
    assert float(chain.forward_s.args[0] / fused.forward_s.args[0]) > 5

"""What recipes fuse, overlap, cast and launch changes seconds and bytes as it should."""

import pytest

from cost_models.columns import evaluate
from cost_models.lower import lower
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.stage import micro_batch_costs
from tests.cost_models.setting import CLUSTER, MODELS, PROFILE, functions, model_columns

PLAIN = FrameworkRecipe(name="plain")
SIZES = {
    "tp": 4,
    "cp": 1,
    "cp_heads": 1,
    "cp_ring": 0,
    "ep": 4,
    "etp": 1,
    "sequence_parallel": 1,
    "seq_len": 4096,
    "micro_batch_size": 2,
    "expert_imbalance": 1,
    "document_mask_imbalance": 1,
    "pp_stride": 4,
    "expert_stride": 4,
    "recompute_norm": 0,
    "recompute_activation": 0,
    "recompute_core_attention": 0,
    "recompute_mla_up_proj": 0,
    "recompute_mlp": 0,
    "recompute_moe": 0,
    "recompute_shared_experts": 0,
    "recompute_full": 0,
}


def layer(model_name="llama", dtype="bf16", recipe_changes=None, **changes):
    """Costs of one micro-batch under the plain recipe with some fields changed."""
    model, recipe = MODELS[model_name], PLAIN.replaced(**(recipe_changes or {}))
    columns = {"padded_vocab": 128256, **SIZES, **model_columns(model), **changes}
    lowered = lower(micro_batch_costs(model, recipe), functions(recipe, dtype))
    return {name: float(values[0]) for name, values in evaluate(lowered, columns, 1).items()}


def test_tensor_parallel_overlap_hides_but_the_first_piece():
    """In pieces beside their products collectives add less, but no less than a piece of each; nothing at TP 1."""
    waiting, hidden = layer(), layer(recipe_changes={"overlap_tensor_parallel": True})
    assert (
        waiting["layer_tensor_parallel_s"] / 4 < hidden["layer_tensor_parallel_s"] < waiting["layer_tensor_parallel_s"]
    )
    alone = layer(recipe_changes={"overlap_tensor_parallel": True}, tp=1, sequence_parallel=0)
    assert alone == pytest.approx(layer(tp=1, sequence_parallel=0), rel=1e-12)


def test_expert_exchanges_hide_behind_another_micro_batch():
    """Exchanges that run beside compute add less; attention and products stay as they are."""
    waiting, hidden = layer("latent"), layer("latent", recipe_changes={"overlap_expert_parallel": True})
    assert hidden["layer_expert_parallel_s"] < waiting["layer_expert_parallel_s"]
    assert hidden["layer_weight_grad_s"] == waiting["layer_weight_grad_s"]


def test_eager_norms_keep_fp32_copies():
    """An RMS norm as separate kernels keeps 4 bytes an element more and moves more; a layer norm is always fused."""
    fused, eager = layer(), layer(recipe_changes={"fused_norm": False})
    elements = 2 * 4096 * MODELS["llama"].hidden / 4
    assert eager["layer_saved_bytes"] - fused["layer_saved_bytes"] == pytest.approx(2 * 4 * elements)
    assert eager["layer_forward_s"] > fused["layer_forward_s"]
    assert layer("gpt", recipe_changes={"fused_norm": False}) == layer("gpt")


def test_eager_activations_keep_the_activated_gate():
    """A gated activation in two kernels keeps 2 bytes more for each of its outputs; one without gate is one kernel."""
    fused, eager = layer(), layer(recipe_changes={"fused_activation": False})
    outputs = 2 * 4096 * MODELS["llama"].ffn / 4
    assert eager["layer_saved_bytes"] - fused["layer_saved_bytes"] == pytest.approx(2 * outputs)
    assert layer("gpt", recipe_changes={"fused_activation": False}) == layer("gpt")


def test_eager_positions_move_fp32_copies():
    """Rotary positions through fp32 copies take longer and keep nothing more."""
    fused, eager = layer(), layer(recipe_changes={"fused_rope": False})
    assert eager["layer_forward_s"] > fused["layer_forward_s"]
    assert eager["layer_saved_bytes"] == fused["layer_saved_bytes"]


def test_recompute_that_stops_early_spares_the_last_product():
    """A layer run again up to its last kept tensor, the activation, takes the down projection and what follows less."""
    whole, early = (
        layer(tp=1, sequence_parallel=0, recompute_full=1, recipe_changes={"recompute_stops_early": flag})
        for flag in (False, True)
    )
    model, gpu = MODELS["llama"], CLUSTER.gpu
    spared = whole["layer_recompute_s"] - early["layer_recompute_s"]
    product = 2 * 2 * 4096 * model.hidden * model.ffn / (gpu.peak_flops["bf16"] * PROFILE.gemm["bf16"].peak_fraction)
    assert spared == pytest.approx(product / PROFILE.sustained_fraction, rel=0.1)
    assert early["layer_forward_s"] == whole["layer_forward_s"]
    selective = [layer(recompute_mlp=1, recipe_changes={"recompute_stops_early": flag}) for flag in (False, True)]
    assert selective[0] == selective[1]


def test_slower_launches_hold_up_small_layers():
    """Host time of a launch counts where it is longer than the kernels, and nowhere else."""
    tiny = {"seq_len": 64, "micro_batch_size": 1}
    once, twice = (layer(recipe_changes={"launch_factor": factor}, **tiny)["layer_forward_s"] for factor in (10, 20))
    assert twice == pytest.approx(2 * once)
    assert layer(recipe_changes={"launch_factor": 3})["layer_forward_s"] == layer()["layer_forward_s"]


def test_fp8_keeps_operands_in_a_byte():
    """Norm and activation outputs are kept as one-byte operands, the attention's output as operand and in bf16."""
    model = MODELS["llama"]
    tokens = 2 * 4096 / 4
    saved = layer()["layer_saved_bytes"] - layer(dtype="fp8", quantised=1)["layer_saved_bytes"]
    assert saved == pytest.approx(tokens * (2 * model.hidden + model.ffn - model.heads * model.head_dim))


def test_operands_that_are_cast_again_are_kept_as_in_bf16():
    """An engine that casts once more in the backward keeps as much as without fp8."""
    again = {"keeps_cast_operands": False}
    kept = layer(dtype="fp8", quantised=1, recipe_changes=again)["layer_saved_bytes"]
    assert kept == pytest.approx(layer()["layer_saved_bytes"])


def test_gathered_operands_are_kept_whole():
    """An engine that does not gather again keeps the outputs of both norms of a layer undivided by TP."""
    gathered = layer(recipe_changes={"keeps_gathered_operands": True})["layer_saved_bytes"]
    outputs = 2 * 2 * (2 * 4096) * MODELS["llama"].hidden
    assert gathered - layer()["layer_saved_bytes"] == pytest.approx(outputs * (1 - 1 / 4))
    alone = layer(tp=1, sequence_parallel=0)["layer_saved_bytes"]
    kept = layer(recipe_changes={"keeps_gathered_operands": True}, tp=1, sequence_parallel=0)["layer_saved_bytes"]
    assert kept == alone


def test_fp8_products_cast_their_operands():
    """With products as fast as in bf16, casting makes a layer slower."""
    assert layer(quantised=1)["layer_forward_s"] > layer()["layer_forward_s"]


def test_the_loss_moves_what_its_recipe_says():
    """Half the traffic of the loss is half its time beyond the launches."""
    whole, half, none = (layer(recipe_changes={"loss_traffic_bytes": size})["head_forward_s"] for size in (16, 8, 0))
    assert whole - half == pytest.approx(half - none, rel=0.05)


def test_other_attention_kernels_reach_less():
    """FlashAttention-2 and Triton kernels are slower than the device's own on a Hopper."""
    native, flash2, triton = (
        layer(recipe_changes={"attention_kernel": kernel})["layer_forward_s"]
        for kernel in ("native", "flash2", "triton")
    )
    assert native < flash2 < triton


@pytest.mark.slow
def test_experts_launched_one_by_one_hold_up_the_host():
    """Launches of every expert's product add to the forward; graphs of all but the experts leave those alone."""
    each = layer("latent")
    at_once = layer("latent", recipe_changes={"launches_per_expert": False})
    experts = MODELS["latent"].moe.experts / SIZES["ep"]
    stalled = 2 * (experts - 1) * PROFILE.host_launch_s
    assert each["layer_forward_s"] - at_once["layer_forward_s"] == pytest.approx(stalled, rel=0.5)
    tiny = {"seq_len": 64, "micro_batch_size": 1}
    eager = layer("latent", **tiny)["layer_forward_s"]
    partial = layer("latent", recipe_changes={"cuda_graphs_without_experts": True}, **tiny)["layer_forward_s"]
    graphs = layer("latent", recipe_changes={"cuda_graphs": True}, **tiny)["layer_forward_s"]
    assert graphs < partial < eager


def test_copies_that_travel_together_are_not_sorted():
    """A dispatcher that brings copies in place spares two passes over what a rank receives."""
    plain, together = layer("latent", ep=1), layer("latent", recipe_changes={"expert_dispatcher": "deduplicated"}, ep=1)
    assert together["layer_forward_s"] < plain["layer_forward_s"]

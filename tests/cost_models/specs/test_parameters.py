"""Parameter counts: exact where the number is published, within the tolerance of the nominal one elsewhere."""

import pytest
from hypothesis import given

from cost_models.specs.catalog import load_model, names
from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import (
    active_parameters,
    embedding_parameters,
    expert_parameters,
    head_parameters,
    layer_parameters,
    mtp_layer_parameters,
    parameters,
)
from tests.strategies import any_model_specs

# Totals that the published checkpoints have, to the parameter.
EXACT = {
    "gpt2": 124_439_808,
    "llama2-7b": 6_738_415_616,
    "llama2-13b": 13_015_864_320,
    "llama2-70b": 68_976_648_192,
    "llama3-8b": 8_030_261_248,
    "llama3-70b": 70_553_706_496,
    "llama3.1-405b": 405_853_388_800,
    "llama3.2-1b": 1_235_814_400,
    "llama3.2-3b": 3_212_749_824,
    "mistral-7b": 7_241_732_096,
    "mixtral-8x7b": 46_702_792_704,
    "qwen2.5-7b": 7_615_616_512,
    "qwen2.5-32b": 32_763_876_352,
    "qwen2.5-72b": 72_706_203_648,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-30b-a3b": 30_532_122_624,
    "gemma-2b": 2_506_172_416,
    "gemma-7b": 8_537_680_896,
    "gemma2-2b": 2_614_341_888,
    "gemma2-9b": 9_241_705_984,
    "gemma2-27b": 27_227_128_320,
    "deepseek-v2-lite": 15_706_484_224,
    "deepseek-v2": 235_741_434_880,
    "deepseek-v3": 671_026_419_200,
    "gpt-oss-20b": 20_914_757_184,
    "gpt-oss-120b": 116_829_156_672,
    "falcon-7b": 6_921_720_704,
    "phi-4": 14_659_507_200,
    "pythia-12b": 11_846_072_320,
    "bloom-176b": 176_247_271_424,
}
# Nominal total in 1e9, tolerance in percent, and active parameters in 1e9 (embedding and head counted) where sparse.
NOMINAL = {
    "gpt2": (0.124, 0.5, None),
    "llama2-7b": (6.74, 0.5, None),
    "llama2-13b": (13.02, 0.5, None),
    "llama2-70b": (68.98, 0.5, None),
    "llama3-8b": (8.03, 0.5, None),
    "llama3-70b": (70.55, 0.5, None),
    "llama3.1-8b": (8.03, 0.5, None),
    "llama3.1-70b": (70.55, 0.5, None),
    "llama3.1-405b": (405.85, 0.5, None),
    "llama3.2-1b": (1.24, 0.5, None),
    "llama3.2-3b": (3.21, 0.5, None),
    "llama3.3-70b": (70.55, 0.5, None),
    "llama4-scout-17b-16e": (109, 1.2, 17.17),
    "llama4-maverick-17b-128e": (400, 0.5, 17.18),
    "mistral-7b": (7.24, 0.5, None),
    "mistral-7b-v0.3": (7.25, 0.5, None),
    "mixtral-8x7b": (46.7, 0.5, 12.88),
    "mixtral-8x22b": (140.6, 0.5, 39.16),
    "qwen2.5-1.5b": (1.54, 0.5, None),
    "qwen2.5-7b": (7.62, 0.5, None),
    "qwen2.5-14b": (14.77, 0.5, None),
    "qwen2.5-32b": (32.76, 0.5, None),
    "qwen2.5-72b": (72.7, 0.5, None),
    "qwen3-0.6b": (0.6, 0.7, None),
    "qwen3-1.7b": (1.7, 1.3, None),
    "qwen3-4b": (4.0, 0.6, None),
    "qwen3-8b": (8.19, 0.5, None),
    "qwen3-14b": (14.8, 0.5, None),
    "qwen3-32b": (32.8, 0.5, None),
    "qwen3-30b-a3b": (30.5, 0.5, 3.353),
    "qwen3-235b-a22b": (235, 0.5, 22.19),
    "qwen3-coder-480b-a35b": (480, 0.5, 35.47),
    "gemma-2b": (2.51, 0.5, None),
    "gemma-7b": (8.54, 0.5, None),
    "gemma2-2b": (2.61, 0.5, None),
    "gemma2-9b": (9.24, 0.5, None),
    "gemma2-27b": (27.2, 0.5, None),
    "gemma3-4b": (3.88, 0.5, None),
    "gemma3-12b": (11.8, 0.5, None),
    "gemma3-27b": (27.0, 0.5, None),
    "deepseek-v2-lite": (15.7, 0.5, 2.661),
    "deepseek-v2": (236, 0.5, 21.38),
    "deepseek-v3": (671, 0.5, 37.55),
    "kimi-k2": (1026, 0.5, 32.86),
    "gpt-oss-20b": (20.9, 0.5, 4.187),
    "gpt-oss-120b": (116.8, 0.5, 5.712),
    "falcon-7b": (6.92, 0.5, None),
    "falcon-40b": (41.8, 0.5, None),
    "falcon-180b": (180, 0.5, None),
    "phi-4": (14.66, 0.5, None),
    "pythia-12b": (11.8, 0.5, None),
    "olmo2-7b": (7.3, 0.5, None),
    "olmo2-13b": (13.7, 0.5, None),
    "olmo3-7b": (7.3, 0.5, None),
    "olmo3-32b": (32, 0.8, None),
    "gpt3-175b": (175, 0.5, None),
    "bloom-176b": (176.25, 0.5, None),
    "opt-175b": (175, 0.5, None),
    "megatron-530b": (530, 0.5, None),
    "megatron-1t": (1008, 0.5, None),
    "grok-1": (314, 0.6, 83.76),
}


@pytest.mark.parametrize("name", sorted(EXACT))
def test_published_checkpoints_are_counted_to_the_parameter(name: str) -> None:
    """Norms, biases, routers, latents, sinks and ties are all in."""
    assert parameters(load_model(name)) == EXACT[name]


@pytest.mark.parametrize("name", names("models"))
def test_every_model_of_the_catalog_has_its_nominal_size(name: str) -> None:
    """Total and active parameters, within the tolerance of the rounded figure."""
    nominal, tolerance_percent, active = NOMINAL[name]
    model = load_model(name)
    assert parameters(model) / 1e9 == pytest.approx(nominal, rel=tolerance_percent / 100)
    assert active_parameters(model) / 1e9 == pytest.approx(active or parameters(model) / 1e9, rel=1e-3)


def test_mtp_layers_are_counted_only_when_asked() -> None:
    """DeepSeek-V3's MTP layer adds a layer, a 2h x h projection and three norms, all in all 11.6e9."""
    model = load_model("deepseek-v3")
    extra = parameters(model, mtp=True) - parameters(model)
    assert extra == mtp_layer_parameters(model)
    assert extra == layer_parameters(model, model.mtp_kind) + 2 * 7168**2 + 3 * 7168
    active_extra = active_parameters(model, mtp=True) - active_parameters(model)
    assert model.moe is not None
    assert active_extra == extra - 248 * expert_parameters(model, model.moe)


def test_qwen2_moe_counts_the_gate_of_its_shared_experts() -> None:
    """Qwen1.5-MoE-A2.7B has 14,315,784,192 parameters."""
    model = ModelSpec(
        name="qwen1.5-moe",
        layers=24,
        hidden=2048,
        ffn=5632,
        heads=16,
        kv_heads=16,
        head_dim=128,
        vocab=151936,
        max_seq_len=8192,
        qkv_bias=True,
        moe={
            "experts": 60,
            "top_k": 4,
            "expert_ffn": 1408,
            "shared_experts": 1,
            "shared_ffn": 5632,
            "shared_expert_gate": True,
        },
    )
    assert parameters(model) == 14_315_784_192


@given(any_model_specs())
def test_the_parts_add_up_and_tying_saves_one_matrix(model: ModelSpec) -> None:
    """Embedding, layers and head are everything; a tied head has no matrix; active is never more than all."""
    layers = sum(layer_parameters(model, kind) for kind in model.layer_kinds)
    assert parameters(model) == embedding_parameters(model) + layers + head_parameters(model)
    untied, tied = (parameters(model.replaced(tie_embeddings=tie)) for tie in (False, True))
    assert untied - tied == model.vocab * model.hidden
    assert active_parameters(model) <= parameters(model)
    assert (active_parameters(model) == parameters(model)) == (
        model.moe is None or model.moe.top_k == model.moe.experts
    )
    assert parameters(model, mtp=True) - parameters(model) == model.mtp_layers * mtp_layer_parameters(model)

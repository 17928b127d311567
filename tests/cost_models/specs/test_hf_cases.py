"""Configurations that people reported because a tool read them wrongly, with the answers that turned out right.

The name of each case says where it was met; all counts are of the published checkpoints.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.hf_config import load_hf_config
from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import active_parameters, embedding_parameters, parameters


def config(
    model_type: str, layers: int, hidden: int, ffn: int, heads: int, kv_heads: int, vocab: int, **more: Any
) -> dict[str, Any]:
    """Return the entries that nearly every file has, and some more."""
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
        **more,
    }


def gpt2(layers: int, width: int, heads: int) -> dict[str, Any]:
    """Return a file with the names that GPT-2 gave its keys."""
    names = {"n_layer": layers, "n_embd": width, "n_head": heads, "n_positions": 1024, "vocab_size": 50257}
    return {"model_type": "gpt2", **names}


def experts(count: int, top_k: int, width: int) -> dict[str, Any]:
    """Return the entries of a Qwen file about experts."""
    return {"num_experts": count, "num_experts_per_tok": top_k, "moe_intermediate_size": width}


DEEPSEEK = {
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
}
GPT_OSS = {"head_dim": 64, "num_experts_per_tok": 4, "sliding_window": 128, "attention_bias": True}
TIED, UNTIED, HEAD_128 = {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {"head_dim": 128}

# The file, and the parameters of the checkpoint.
CASES: dict[str, tuple[dict[str, Any], int]] = {
    "gpt2": (gpt2(12, 768, 12), 124_439_808),
    "gpt2-large": (gpt2(36, 1280, 20), 774_030_080),
    "gpt2-xl": (gpt2(48, 1600, 25), 1_557_611_200),
    "llama2-7b without kv heads": (
        {k: v for k, v in config("llama", 32, 4096, 11008, 32, 32, 32000).items() if k != "num_key_value_heads"},
        6_738_415_616,
    ),
    "llama2-70b": (config("llama", 80, 8192, 28672, 64, 8, 32000), 68_976_648_192),
    "llama3-70b": (config("llama", 80, 8192, 28672, 64, 8, 128256), 70_553_706_496),
    "llama3.1-8b": (config("llama", 32, 4096, 14336, 32, 8, 128256, **UNTIED), 8_030_261_248),
    "llama3.2-1b tied": (config("llama", 16, 2048, 8192, 32, 8, 128256, **TIED), 1_235_814_400),
    "llama3.2-3b tied": (config("llama", 28, 3072, 8192, 24, 8, 128256, **TIED), 3_212_749_824),
    "mixtral-8x7b": (
        config("mixtral", 32, 4096, 14336, 32, 8, 32000, num_local_experts=8, num_experts_per_tok=2),
        46_702_792_704,
    ),
    "qwen2.5-7b without head_dim": (config("qwen2", 28, 3584, 18944, 28, 4, 152064, head_dim=None), 7_615_616_512),
    "qwen2.5-32b": (config("qwen2", 64, 5120, 27648, 40, 8, 152064), 32_763_876_352),
    "qwen2.5-72b": (config("qwen2", 80, 8192, 29568, 64, 8, 152064), 72_706_203_648),
    "qwen3-4b": (config("qwen3", 36, 2560, 9728, 32, 8, 151936, **TIED, **HEAD_128), 4_022_468_096),
    "qwen3-8b": (config("qwen3", 36, 4096, 12288, 32, 8, 151936, **HEAD_128), 8_190_735_360),
    "qwen3-14b": (config("qwen3", 40, 5120, 17408, 40, 8, 151936, **HEAD_128), 14_768_307_200),
    "qwen3-32b": (config("qwen3", 64, 5120, 25600, 64, 8, 151936, **HEAD_128), 32_762_123_264),
    "qwen1.5-moe-a2.7b": (
        config("qwen2_moe", 24, 2048, 5632, 16, 16, 151936, shared_expert_intermediate_size=5632)
        | experts(60, 4, 1408),
        14_315_784_192,
    ),
    "qwen3-30b-a3b": (
        config("qwen3_moe", 48, 2048, 6144, 32, 4, 151936, **HEAD_128) | experts(128, 8, 768),
        30_532_122_624,
    ),
    "qwen3-235b-a22b": (
        config("qwen3_moe", 94, 4096, 12288, 64, 4, 151936, **HEAD_128) | experts(128, 8, 1536),
        235_093_634_560,
    ),
    "falcon-7b": (
        {"model_type": "falcon", "num_hidden_layers": 32, "hidden_size": 4544, "num_attention_heads": 71}
        | {"multi_query": True, "num_kv_heads": 71, "parallel_attn": True, "bias": False, "vocab_size": 65024},
        6_921_720_704,
    ),
    "gpt-oss-20b": (config("gpt_oss", 24, 2880, 2880, 64, 8, 201088, num_local_experts=32, **GPT_OSS), 20_914_757_184),
    "gpt-oss-120b": (
        config("gpt_oss", 36, 2880, 2880, 64, 8, 201088, num_local_experts=128, **GPT_OSS),
        116_829_156_672,
    ),
    "moonlight-16b-a3b": (
        config("deepseek_v3", 27, 2048, 11264, 16, 16, 163840, q_lora_rank=None, first_k_dense_replace=1, **DEEPSEEK)
        | {"n_routed_experts": 64, "num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408},
        15_960_110_208,
    ),
    "deepseek-v3": (
        config("deepseek_v3", 61, 7168, 18432, 128, 128, 129280, q_lora_rank=1536, first_k_dense_replace=3, **DEEPSEEK)
        | {"n_routed_experts": 256, "num_experts_per_tok": 8, "n_shared_experts": 1, "moe_intermediate_size": 2048},
        671_026_419_200,
    ),
}


def read(folder: Path, entries: dict[str, Any]) -> ModelSpec:
    """Return the model of a folder with these entries in its config.json."""
    (folder / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    return load_hf_config(folder).model


@pytest.mark.parametrize("name", CASES)
def test_the_file_gives_the_parameters_of_the_checkpoint(tmp_path: Path, name: str) -> None:
    """Legacy names, absent heads, explicit head sizes, ties, experts, latents, biases and sinks, to the parameter."""
    entries, expected = CASES[name]
    assert parameters(read(tmp_path, entries)) == expected


def test_a_head_size_is_not_the_width_over_the_heads(tmp_path: Path) -> None:
    """Qwen3-4B has 32 heads of 128 on a width of 2560; heads of 80 would lack 354e6 parameters; Qwen3-32B the same."""
    small, large = (read(tmp_path, CASES[name][0]) for name in ("qwen3-4b", "qwen3-32b"))
    assert (small.heads * small.head_dim, small.hidden) == (4096, 2560)
    assert (large.head_dim, large.hidden // large.heads) == (128, 80)
    assert parameters(small.replaced(head_dim=80)) == 3_668_570_240


def test_a_tied_matrix_counts_once_and_is_held_twice(tmp_path: Path) -> None:
    """Llama-3.2-1B: untied it would have 262,668,288 more, which is what a second pipeline end holds."""
    tied = read(tmp_path, CASES["llama3.2-1b tied"][0])
    untied = tied.replaced(tie_embeddings=False)
    assert parameters(untied) == 1_498_482_688
    assert parameters(untied) - parameters(tied) == embedding_parameters(tied) == 262_668_288


def test_experts_are_all_counted_and_few_are_active(tmp_path: Path) -> None:
    """Mixtral is no 13B model: 46.7e9 parameters, of which a token passes 12.9e9; the Qwens 3.3e9 and 22.2e9."""
    for name, billions in (("mixtral-8x7b", 12.88), ("qwen3-30b-a3b", 3.353), ("qwen3-235b-a22b", 22.19)):
        active = active_parameters(read(tmp_path, CASES[name][0]))
        assert active / 1e9 == pytest.approx(billions, abs=0.005), name


def test_one_key_value_head_said_by_a_flag(tmp_path: Path) -> None:
    """Cached keys and values of 8192 tokens in fp16: GPT-2, SantaCoder with multi_query, and with it ignored."""
    entries = {"n_layer": 24, "n_embd": 2048, "n_head": 16, "vocab_size": 49280, "n_positions": 2048}
    santacoder = read(tmp_path, {"model_type": "gpt_bigcode", "multi_query": True, **entries})
    ignored = santacoder.replaced(kv_heads=santacoder.heads)
    plain = read(tmp_path, CASES["gpt2"][0])
    cached = [8192 * 2 * 2 * m.layers * m.kv_heads * m.head_dim for m in (plain, santacoder, ignored)]
    assert cached == [301_989_888, 100_663_296, 1_610_612_736]


def test_a_prime_number_of_heads(tmp_path: Path) -> None:
    """Falcon-7B: 71 heads share one key-value head whatever num_kv_heads says; only 1 and 71 ranks split them."""
    falcon = read(tmp_path, CASES["falcon-7b"][0])
    assert (falcon.kv_heads, falcon.ffn, falcon.gated_mlp, falcon.tie_embeddings) == (1, 4 * 4544, False, True)
    assert (falcon.parallel_block, falcon.shared_norm) == (True, True)
    split = [tp for tp in range(1, 129) if falcon.heads % tp == 0 and falcon.ffn % tp == 0]
    assert split == [1, 71]


def test_widths_that_no_tile_divides(tmp_path: Path) -> None:
    """gpt-oss: 64 heads of 64 on a width of 2880; eight tensor-parallel ranks leave 360 columns to each."""
    model = read(tmp_path, CASES["gpt-oss-20b"][0])
    assert model.heads * model.head_dim == 4096
    assert (model.hidden % 128, model.ffn // 8) == (64, 360)
    assert model.attention_sinks
    assert model.moe is not None
    assert (model.moe.expert_bias, model.moe.router_bias) == (True, True)
    assert [kind.window for kind in model.layer_kinds[:4]] == [128, 0, 128, 0]


def test_experts_that_eight_ranks_cannot_share(tmp_path: Path) -> None:
    """Qwen1.5-MoE has 60 experts: 1, 2, 3, 4, 5, 6, 10, 12 ... ranks share them, eight do not."""
    moe = read(tmp_path, CASES["qwen1.5-moe-a2.7b"][0]).moe
    assert moe is not None
    assert [ep for ep in range(1, 17) if moe.experts % ep == 0] == [1, 2, 3, 4, 5, 6, 10, 12, 15]
    assert (moe.shared_ffn, moe.shared_expert_gate) == (5632, True)


def test_latent_attention_ignores_the_heads_of_the_file(tmp_path: Path) -> None:
    """Moonlight has no query latent; its heads are 128 + 64 wide, whatever head_dim and num_key_value_heads say."""
    entries, expected = CASES["moonlight-16b-a3b"]
    model = read(tmp_path, entries | {"head_dim": 64, "num_key_value_heads": 4})
    assert parameters(model) == expected
    assert model.mla is not None
    assert (model.mla.query_rank, model.head_dim, model.kv_heads) == (0, 192, 16)
    assert model.moe_layers == 26

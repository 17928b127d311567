"""config.json files of every model type: keys, spellings and defaults lead to the model that transformers builds."""

import json
from pathlib import Path
from typing import Any

import pytest

from cost_models.specs.catalog import load_model
from cost_models.specs.errors import SpecError, UnknownNameError
from cost_models.specs.hf_config import HfModel, load_hf_config
from cost_models.specs.hf_families import FAMILIES
from cost_models.specs.model import ModelSpec
from cost_models.specs.parameters import parameters

GQA = {"num_attention_heads": 32, "num_key_value_heads": 8}
LLAMA = {
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 8192,
    **GQA,
}
QWEN3_MOE = {
    **LLAMA,
    "model_type": "qwen3_moe",
    "num_hidden_layers": 4,
    "head_dim": 128,
    "num_experts": 128,
    "num_experts_per_tok": 8,
    "moe_intermediate_size": 768,
}
DEEPSEEK_V3 = {
    "model_type": "deepseek_v3",
    "num_hidden_layers": 61,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "head_dim": 64,
    "vocab_size": 129280,
    "max_position_embeddings": 163840,
    "n_routed_experts": 256,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "moe_intermediate_size": 2048,
    "moe_layer_freq": 1,
    "first_k_dense_replace": 3,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "num_nextn_predict_layers": 1,
}

# The file of a model that the catalog has too, as its publisher writes it (keys that decide nothing left out).
PUBLISHED: dict[str, dict[str, Any]] = {
    "llama3-8b": LLAMA | {"tie_word_embeddings": False, "rope_theta": 500000.0},
    "llama3.2-1b": LLAMA
    | {"num_hidden_layers": 16, "hidden_size": 2048, "intermediate_size": 8192, "head_dim": 64}
    | {"max_position_embeddings": 131072, "tie_word_embeddings": True},
    "mistral-7b": LLAMA
    | {"model_type": "mistral", "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": 4096},
    "mistral-7b-v0.3": LLAMA
    | {"model_type": "mistral", "vocab_size": 32768, "max_position_embeddings": 32768, "sliding_window": None},
    "mixtral-8x7b": LLAMA
    | {"model_type": "mixtral", "vocab_size": 32000, "max_position_embeddings": 32768, "sliding_window": None}
    | {"num_local_experts": 8, "num_experts_per_tok": 2, "head_dim": None},
    "qwen2.5-7b": {
        "model_type": "qwen2",
        "num_hidden_layers": 28,
        "hidden_size": 3584,
        "intermediate_size": 18944,
        "num_attention_heads": 28,
        "num_key_value_heads": 4,
        "vocab_size": 152064,
        "max_position_embeddings": 131072,
        "max_window_layers": 28,
        "sliding_window": 131072,
        "use_sliding_window": False,
        "tie_word_embeddings": False,
    },
    "qwen3-4b": {
        "model_type": "qwen3",
        "num_hidden_layers": 36,
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "head_dim": 128,
        "vocab_size": 151936,
        "max_position_embeddings": 40960,
        "attention_bias": False,
        "tie_word_embeddings": True,
        "sliding_window": None,
        **GQA,
    },
    "qwen3-30b-a3b": QWEN3_MOE
    | {"num_hidden_layers": 48, "hidden_size": 2048, "intermediate_size": 6144, "num_key_value_heads": 4}
    | {"vocab_size": 151936, "max_position_embeddings": 40960, "decoder_sparse_step": 1, "mlp_only_layers": []},
    "gemma-2b": {
        "model_type": "gemma",
        "num_hidden_layers": 18,
        "hidden_size": 2048,
        "intermediate_size": 16384,
        "num_attention_heads": 8,
        "num_key_value_heads": 1,
        "head_dim": 256,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
    },
    "gemma2-9b": {
        "model_type": "gemma2",
        "num_hidden_layers": 42,
        "hidden_size": 3584,
        "intermediate_size": 14336,
        "num_attention_heads": 16,
        "num_key_value_heads": 8,
        "head_dim": 256,
        "vocab_size": 256000,
        "max_position_embeddings": 8192,
        "sliding_window": 4096,
    },
    "deepseek-v3": DEEPSEEK_V3,
    "deepseek-v2-lite": DEEPSEEK_V3
    | {"model_type": "deepseek_v2", "num_hidden_layers": 27, "hidden_size": 2048, "intermediate_size": 10944}
    | {"num_attention_heads": 16, "num_key_value_heads": 16, "vocab_size": 102400, "n_routed_experts": 64}
    | {"num_experts_per_tok": 6, "n_shared_experts": 2, "moe_intermediate_size": 1408, "first_k_dense_replace": 1}
    | {"q_lora_rank": None, "num_nextn_predict_layers": None},
    "gpt-oss-20b": {
        "model_type": "gpt_oss",
        "num_hidden_layers": 24,
        "hidden_size": 2880,
        "intermediate_size": 2880,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 64,
        "vocab_size": 201088,
        "max_position_embeddings": 131072,
        "num_local_experts": 32,
        "num_experts_per_tok": 4,
        "sliding_window": 128,
        "attention_bias": True,
        "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"] * 12,
    },
    "falcon-7b": {
        "model_type": "falcon",
        "num_hidden_layers": 32,
        "hidden_size": 4544,
        "num_attention_heads": 71,
        "num_kv_heads": 71,
        "multi_query": True,
        "new_decoder_architecture": False,
        "parallel_attn": True,
        "bias": False,
        "alibi": False,
        "vocab_size": 65024,
    },
    "falcon-40b": {
        "model_type": "falcon",
        "num_hidden_layers": 60,
        "hidden_size": 8192,
        "num_attention_heads": 128,
        "num_kv_heads": 8,
        "multi_query": True,
        "new_decoder_architecture": True,
        "vocab_size": 65024,
        "tie_word_embeddings": False,
    },
    "gpt2": {
        "model_type": "gpt2",
        "n_layer": 12,
        "n_embd": 768,
        "n_head": 12,
        "n_inner": None,
        "n_positions": 1024,
        "vocab_size": 50257,
    },
    "pythia-12b": {
        "model_type": "gpt_neox",
        "num_hidden_layers": 36,
        "hidden_size": 5120,
        "intermediate_size": 20480,
        "num_attention_heads": 40,
        "vocab_size": 50688,
        "max_position_embeddings": 2048,
        "use_parallel_residual": True,
    },
    "bloom-176b": {
        "model_type": "bloom",
        "n_layer": 70,
        "n_head": 112,
        "num_attention_heads": 112,
        "hidden_size": 14336,
        "vocab_size": 250880,
        "seq_length": 2048,
    },
    "opt-175b": {
        "model_type": "opt",
        "num_hidden_layers": 96,
        "hidden_size": 12288,
        "ffn_dim": 49152,
        "num_attention_heads": 96,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 12288,
        "do_layer_norm_before": True,
    },
    "phi-4": {
        "model_type": "phi3",
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "intermediate_size": 17920,
        "num_attention_heads": 40,
        "num_key_value_heads": 10,
        "vocab_size": 100352,
        "max_position_embeddings": 16384,
        "sliding_window": None,
    },
    "olmo3-7b": {
        "model_type": "olmo3",
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "vocab_size": 100278,
        "max_position_embeddings": 65536,
        "sliding_window": 4096,
    },
}
LLAMA4 = {
    "model_type": "llama4",
    "vision_config": {"hidden_size": 1408},
    "text_config": {
        "model_type": "llama4_text",
        "num_hidden_layers": 48,
        "hidden_size": 5120,
        "intermediate_size": 8192,
        "intermediate_size_mlp": 16384,
        "num_attention_heads": 40,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 202048,
        "max_position_embeddings": 1048576,
        "num_local_experts": 128,
        "num_experts_per_tok": 1,
        "interleave_moe_layer_step": 2,
        "attention_chunk_size": 8192,
    },
}
GEMMA3 = {
    "model_type": "gemma3",
    "vision_config": {"hidden_size": 1152},
    "text_config": {
        "model_type": "gemma3_text",
        "num_hidden_layers": 34,
        "hidden_size": 2560,
        "intermediate_size": 10240,
        "sliding_window": 1024,
    },
}


def read(folder: Path, entries: dict[str, Any]) -> HfModel:
    """Return what is read from a folder with these entries in its config.json."""
    (folder / "config.json").write_text(json.dumps(entries), encoding="utf-8")
    return load_hf_config(folder)


def without(entries: dict[str, Any], *keys: str) -> dict[str, Any]:
    """Return the entries but for some keys."""
    return {key: value for key, value in entries.items() if key not in keys}


def same(first: ModelSpec, second: ModelSpec) -> bool:
    """Whether two models differ in nothing but their names and the dense width that no layer reads."""
    shared = {"name": "x", "source": ""} | ({"ffn": 1} if all(kind.moe for kind in first.layer_kinds) else {})
    return first.replaced(**shared) == second.replaced(**shared)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_published_file_gives_the_model_of_the_catalog(tmp_path: Path, name: str) -> None:
    """File and catalog come from different sources and agree in every field."""
    found = read(tmp_path, PUBLISHED[name])
    assert same(found.model, load_model(name))
    assert parameters(found.model) == parameters(load_model(name))
    assert found.model.source.startswith("config.json, model type ")


def test_multimodal_files_are_read_through_to_their_text_model(tmp_path: Path) -> None:
    """Llama 4 and Gemma 3 nest their text model; what is left out is said, and what the file leaves out is noted."""
    maverick = read(tmp_path, LLAMA4)
    assert same(maverick.model, load_model("llama4-maverick"))
    assert "only its text model is planned" in maverick.notes[0]
    gemma = read(tmp_path, GEMMA3)
    assert same(gemma.model, load_model("gemma3-4b").replaced(vocab=262_208))
    assert sum("as transformers assumes for gemma3_text" in note for note in gemma.notes) == 5
    untyped = GEMMA3 | {"text_config": without(GEMMA3["text_config"], "model_type")}
    assert read(tmp_path, untyped).model == gemma.model
    assert not read(tmp_path, LLAMA).notes
    for key in ("language_config", "llm_config"):
        other = read(tmp_path, {"model_type": "seen_elsewhere", key: LLAMA})
        assert other.model == read(tmp_path, LLAMA).model
        assert "only its text model is planned" in other.notes[0]


@pytest.mark.parametrize(
    ("model_type", "tied"),
    [("llama", False), ("mistral", False), ("qwen2", False), ("phi3", False), ("gemma", True), ("falcon", True)],
)
def test_an_omitted_tie_is_the_one_of_the_model_type(tmp_path: Path, model_type: str, tied: bool) -> None:
    """tie_word_embeddings is often left out; where it stands, it holds, at the top of a nested file too."""
    entries = LLAMA | {"model_type": model_type}
    assert read(tmp_path, entries).model.tie_embeddings is tied
    assert read(tmp_path, entries | {"tie_word_embeddings": not tied}).model.tie_embeddings is not tied
    nested = {"model_type": "mistral3", "tie_word_embeddings": not tied, "text_config": entries}
    assert read(tmp_path, nested).model.tie_embeddings is not tied


def test_omitted_heads_and_widths(tmp_path: Path) -> None:
    """No key-value heads: all of them, or the type's default with a note; no head size: hidden / heads."""
    old = read(tmp_path, without(LLAMA, "num_key_value_heads"))
    assert (old.model.kv_heads, old.model.head_dim, old.notes) == (32, 128, ())
    mistral = read(tmp_path, without(LLAMA, "num_key_value_heads") | {"model_type": "mistral"})
    assert mistral.model.kv_heads == 8
    assert mistral.notes == ("The config.json has no num_key_value_heads: 8, as transformers assumes for mistral.",)
    null = read(tmp_path, LLAMA | {"num_key_value_heads": None, "model_type": "mistral"})
    assert (null.model.kv_heads, null.notes) == (32, ())
    assert read(tmp_path, LLAMA | {"model_type": "gemma"}).model.head_dim == 256
    assert read(tmp_path, LLAMA | {"model_type": "gemma", "head_dim": None}).model.head_dim == 128
    gpt = {"model_type": "gpt_bigcode", "n_layer": 24, "n_embd": 2048, "n_head": 16, "vocab_size": 49280}
    assert read(tmp_path, gpt | {"n_positions": 2048, "multi_query": True}).model.kv_heads == 1
    assert read(tmp_path, gpt | {"multi_query": False}).model.kv_heads == 16
    assert read(tmp_path, gpt).model.ffn == 8192
    assert read(tmp_path, gpt | {"n_inner": 4096}).model.ffn == 4096


def test_biases(tmp_path: Path) -> None:
    """attention_bias has four for Llama, three for GLM; mlp_bias is its own key."""
    spec = read(tmp_path, LLAMA | {"attention_bias": True, "mlp_bias": True}).model
    assert (spec.qkv_bias, spec.attention_output_bias, spec.mlp_bias) == (True, True, True)
    glm = read(tmp_path, without(DEEPSEEK_V3, "kv_lora_rank") | {"model_type": "glm4_moe", "attention_bias": True})
    assert (glm.model.qkv_bias, glm.model.attention_output_bias, glm.model.qk_norm) == (True, False, "none")
    assert glm.model.moe is not None
    assert (glm.model.moe.router_bias, glm.model.mla, glm.model.mtp_layers) == (True, None, 1)
    gptj = {"model_type": "gptj", "n_layer": 28, "n_embd": 4096, "n_head": 16, "vocab_size": 50400}
    assert parameters(read(tmp_path, gptj).model) == 6_050_882_784


@pytest.mark.parametrize(
    ("changes", "leading", "step"),
    [
        ({}, 0, 1),
        ({"decoder_sparse_step": 2}, 0, 2),
        ({"mlp_only_layers": [0]}, 1, 1),
        ({"mlp_only_layers": [0, 2]}, 0, 2),
        ({"decoder_sparse_step": 4, "num_hidden_layers": 8}, 0, 4),
        ({"decoder_sparse_step": 4}, 3, 1),
    ],
)
def test_which_layers_have_experts(tmp_path: Path, changes: dict[str, Any], leading: int, step: int) -> None:
    """Qwen's step and list of dense layers become leading layers and a step."""
    moe = read(tmp_path, QWEN3_MOE | changes).model.moe
    assert moe is not None
    assert (moe.leading_dense_layers, moe.layer_step) == (leading, step)


def test_experts_of_the_other_families(tmp_path: Path) -> None:
    """Aliases, shared experts with a gate, dense DeepSeeks, listed Llama 4 layers, frequency of MoE layers."""
    renamed = without(QWEN3_MOE, "num_experts") | {"num_local_experts": 128}
    assert read(tmp_path, renamed).model == read(tmp_path, QWEN3_MOE).model
    shared = QWEN3_MOE | {"model_type": "qwen2_moe", "shared_expert_intermediate_size": 5632}
    qwen2 = read(tmp_path, shared).model
    assert qwen2.moe is not None
    assert (qwen2.moe.shared_experts, qwen2.moe.shared_ffn, qwen2.moe.shared_expert_gate) == (1, 5632, True)
    assert (qwen2.qkv_bias, qwen2.qk_norm) == (True, "none")
    assert read(tmp_path, DEEPSEEK_V3 | {"n_routed_experts": None}).model.moe is None
    text = LLAMA4["text_config"]
    listed = {**LLAMA4, "text_config": {**text, "moe_layers": list(range(1, 48, 2)), "interleave_moe_layer_step": 7}}
    assert read(tmp_path, listed).model == read(tmp_path, LLAMA4).model
    every_other = read(tmp_path, DEEPSEEK_V3 | {"first_k_dense_replace": 2, "moe_layer_freq": 2}).model
    assert [kind.moe for kind in every_other.layer_kinds[:6]] == [False, False, True, False, True, False]
    olmoe = LLAMA | {"model_type": "olmoe", "num_experts": 64, "num_experts_per_tok": 8}
    assert read(tmp_path, olmoe).model.qk_norm == "projection"


def test_windows(tmp_path: Path) -> None:
    """Listed layer types win; Qwen windows only its upper layers, and only when told to; an odd list is refused."""
    six = LLAMA | {"num_hidden_layers": 6, "model_type": "gemma3_text", "sliding_window": 512}
    assert read(tmp_path, six).model.full_attention_step == 6
    assert read(tmp_path, six | {"sliding_window_pattern": 3}).model.full_attention_step == 3
    types = ["sliding_attention", "full_attention"] * 3
    assert read(tmp_path, six | {"layer_types": types}).model.full_attention_step == 2
    assert read(tmp_path, six | {"layer_types": ["full_attention"] * 6}).model.sliding_window == 0
    qwen = LLAMA | {"model_type": "qwen2", "use_sliding_window": True, "sliding_window": 4096}
    assert read(tmp_path, qwen | {"max_window_layers": 0}).model.sliding_window == 4096
    assert read(tmp_path, qwen | {"max_window_layers": 32}).model.sliding_window == 0
    with pytest.raises(SpecError, match="full attention are not every k-th"):
        read(tmp_path, qwen | {"max_window_layers": 28})


def test_falcon_with_alibi_and_a_sequential_block(tmp_path: Path) -> None:
    """falcon-rw has all heads, biases, ALiBi and ordinary blocks."""
    entries = PUBLISHED["falcon-7b"] | {"multi_query": False, "parallel_attn": False, "alibi": True, "bias": True}
    spec = read(tmp_path, without(entries, "num_kv_heads")).model
    assert (spec.kv_heads, spec.parallel_block, spec.shared_norm, spec.positions) == (71, False, False, "alibi")
    assert spec.qkv_bias
    assert spec.mlp_bias


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        (LLAMA | {"num_hidden_layers": -1}, "num_hidden_layers must be a whole number from 1 to 10000, got -1"),
        (LLAMA | {"num_hidden_layers": 32.0}, "num_hidden_layers must be a whole number from 1 to 10000, got 32.0"),
        (LLAMA | {"hidden_size": 10**40}, "hidden_size must be a whole number from 1 to 10000000, got 1000"),
        (LLAMA | {"vocab_size": "32000"}, "vocab_size must be a whole number from 1 to 10000000, got '32000'"),
        (LLAMA | {"vocab_size": True}, "vocab_size must be a whole number"),
        (LLAMA | {"tie_word_embeddings": "no"}, "tie_word_embeddings must be true or false, got 'no'"),
        (LLAMA | {"num_key_value_heads": 64}, "num_key_value_heads must divide num_attention_heads 32, got 64"),
        (LLAMA | {"num_key_value_heads": 5}, "num_key_value_heads must divide num_attention_heads 32, got 5"),
        (
            LLAMA | {"num_attention_heads": 24},
            "num_attention_heads must divide hidden_size 4096 without head_dim, got 24",
        ),
        (LLAMA | {"n_layer": 16}, "num_hidden_layers 32 contradicts n_layer 16"),
        (LLAMA | {"head_dim": 127}, "model.head_dim must be even with rotary positions, got 127"),
        (without(LLAMA, "vocab_size"), "vocab_size is required"),
        (without(LLAMA, "intermediate_size"), "intermediate_size is required"),
        (without(LLAMA, "num_hidden_layers"), "num_hidden_layers is required"),
        (QWEN3_MOE | {"num_experts_per_tok": 200}, "num_experts_per_tok must be <= the 128 experts, got 200"),
        (QWEN3_MOE | {"mlp_only_layers": [0, 1, 2, 3]}, "no layer has experts"),
        (QWEN3_MOE | {"mlp_only_layers": [1]}, "the layers with experts are not every k-th"),
        (QWEN3_MOE | {"mlp_only_layers": "all"}, "mlp_only_layers must be a list of whole numbers, got 'all'"),
        (LLAMA | {"model_type": "olmo3", "layer_types": ["full_attention"]}, "each of the 32 layers, got 1"),
        (
            LLAMA | {"model_type": "olmo3", "layer_types": ["linear_attention"] * 32},
            "layer_types has 'linear_attention'",
        ),
        (DEEPSEEK_V3 | {"attention_bias": True}, "attention_bias must be false with latent attention"),
        (without(DEEPSEEK_V3, "kv_lora_rank"), "kv_lora_rank is required"),
        (PUBLISHED["opt-175b"] | {"word_embed_proj_dim": 512}, "word_embed_proj_dim must be hidden_size 12288"),
        (PUBLISHED["opt-175b"] | {"do_layer_norm_before": False}, "do_layer_norm_before must be true"),
        (GEMMA3 | {"text_config": [1]}, "text_config must be an object, got list"),
        (without(LLAMA, "model_type"), "model_type is required"),
    ],
)
def test_what_contradicts_itself_is_refused_with_file_and_key(
    tmp_path: Path, entries: dict[str, Any], message: str
) -> None:
    """One line that begins with the file and names the key, the value and what is allowed."""
    with pytest.raises(SpecError) as caught:
        read(tmp_path, entries)
    assert str(caught.value).startswith(str(tmp_path / "config.json"))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("model_type", "message"),
    [
        ("llamma", "unknown model_type 'llamma'; did you mean 'llama'"),
        ("nonesuch", "unknown model_type 'nonesuch'; known: bloom, deepseek_v2, "),
        ("qwen3_next", "model_type 'qwen3_next' has linear attention, which cannot be planned"),
        ("mamba", "model_type 'mamba' has state-space layers, which cannot be planned"),
    ],
)
def test_types_that_cannot_be_planned_are_named(tmp_path: Path, model_type: str, message: str) -> None:
    """An unknown type comes with the known ones, one that is known and not planned with the reason."""
    with pytest.raises(UnknownNameError, match=message):
        read(tmp_path, LLAMA | {"model_type": model_type})


@pytest.mark.parametrize("model_type", sorted(FAMILIES))
def test_every_type_reads_a_full_set_of_keys(tmp_path: Path, model_type: str) -> None:
    """No family needs more than the usual keys, and its model has at least its embedding's parameters."""
    usual = {**DEEPSEEK_V3, **LLAMA, "moe_layer_freq": 1, "num_kv_heads": 8, "head_dim": 128, "model_type": model_type}
    model = read(tmp_path, usual).model
    assert parameters(model) > model.vocab * model.hidden

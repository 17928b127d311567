"""The shape of every model of the catalog, typed in from configurations that two public code bases ship."""

import pytest

from cost_models.specs.catalog import load_model, names
from cost_models.specs.model import ModelSpec

# layers hidden ffn heads kv_heads head_dim vocabulary, tied embeddings, plain = two MLP matrices (ffn 0: no dense MLP);
# experts top_k shared width leading_dense step; ranks of query and key-value latent, head widths of nope, rope, value.
SHAPES = {
    "gpt2": ("12 768 3072 12 12 64 50257 tied plain", "", ""),
    "llama2-7b": ("32 4096 11008 32 32 128 32000", "", ""),
    "llama2-13b": ("40 5120 13824 40 40 128 32000", "", ""),
    "llama2-70b": ("80 8192 28672 64 8 128 32000", "", ""),
    "llama3-8b": ("32 4096 14336 32 8 128 128256", "", ""),
    "llama3-70b": ("80 8192 28672 64 8 128 128256", "", ""),
    "llama3.1-8b": ("32 4096 14336 32 8 128 128256", "", ""),
    "llama3.1-70b": ("80 8192 28672 64 8 128 128256", "", ""),
    "llama3.1-405b": ("126 16384 53248 128 8 128 128256", "", ""),
    "llama3.2-1b": ("16 2048 8192 32 8 64 128256 tied", "", ""),
    "llama3.2-3b": ("28 3072 8192 24 8 128 128256 tied", "", ""),
    "llama3.3-70b": ("80 8192 28672 64 8 128 128256", "", ""),
    "llama4-scout-17b-16e": ("48 5120 0 40 8 128 202048", "16 1 1 8192 0 1", ""),
    "llama4-maverick-17b-128e": ("48 5120 16384 40 8 128 202048", "128 1 1 8192 0 2", ""),
    "mistral-7b": ("32 4096 14336 32 8 128 32000", "", ""),
    "mistral-7b-v0.3": ("32 4096 14336 32 8 128 32768", "", ""),
    "mixtral-8x7b": ("32 4096 0 32 8 128 32000", "8 2 0 14336 0 1", ""),
    "mixtral-8x22b": ("56 6144 0 48 8 128 32768", "8 2 0 16384 0 1", ""),
    "qwen2.5-1.5b": ("28 1536 8960 12 2 128 151936 tied", "", ""),
    "qwen2.5-7b": ("28 3584 18944 28 4 128 152064", "", ""),
    "qwen2.5-14b": ("48 5120 13824 40 8 128 152064", "", ""),
    "qwen2.5-32b": ("64 5120 27648 40 8 128 152064", "", ""),
    "qwen2.5-72b": ("80 8192 29568 64 8 128 152064", "", ""),
    "qwen3-0.6b": ("28 1024 3072 16 8 128 151936 tied", "", ""),
    "qwen3-1.7b": ("28 2048 6144 16 8 128 151936 tied", "", ""),
    "qwen3-4b": ("36 2560 9728 32 8 128 151936 tied", "", ""),
    "qwen3-8b": ("36 4096 12288 32 8 128 151936", "", ""),
    "qwen3-14b": ("40 5120 17408 40 8 128 151936", "", ""),
    "qwen3-32b": ("64 5120 25600 64 8 128 151936", "", ""),
    "qwen3-30b-a3b": ("48 2048 0 32 4 128 151936", "128 8 0 768 0 1", ""),
    "qwen3-235b-a22b": ("94 4096 0 64 4 128 151936", "128 8 0 1536 0 1", ""),
    "qwen3-coder-480b-a35b": ("62 6144 0 96 8 128 151936", "160 8 0 2560 0 1", ""),
    "gemma-2b": ("18 2048 16384 8 1 256 256000 tied", "", ""),
    "gemma-7b": ("28 3072 24576 16 16 256 256000 tied", "", ""),
    "gemma2-2b": ("26 2304 9216 8 4 256 256000 tied", "", ""),
    "gemma2-9b": ("42 3584 14336 16 8 256 256000 tied", "", ""),
    "gemma2-27b": ("46 4608 36864 32 16 128 256000 tied", "", ""),
    "gemma3-4b": ("34 2560 10240 8 4 256 262144 tied", "", ""),
    "gemma3-12b": ("48 3840 15360 16 8 256 262144 tied", "", ""),
    "gemma3-27b": ("62 5376 21504 32 16 128 262144 tied", "", ""),
    "deepseek-v2-lite": ("27 2048 10944 16 16 192 102400", "64 6 2 1408 1 1", "0 512 128 64 128"),
    "deepseek-v2": ("60 5120 12288 128 128 192 102400", "160 6 2 1536 1 1", "1536 512 128 64 128"),
    "deepseek-v3": ("61 7168 18432 128 128 192 129280", "256 8 1 2048 3 1", "1536 512 128 64 128"),
    "kimi-k2": ("61 7168 18432 64 64 192 163840", "384 8 1 2048 1 1", "1536 512 128 64 128"),
    "gpt-oss-20b": ("24 2880 0 64 8 64 201088", "32 4 0 2880 0 1", ""),
    "gpt-oss-120b": ("36 2880 0 64 8 64 201088", "128 4 0 2880 0 1", ""),
    "falcon-7b": ("32 4544 18176 71 1 64 65024 tied plain", "", ""),
    "falcon-40b": ("60 8192 32768 128 8 64 65024 plain", "", ""),
    "falcon-180b": ("80 14848 59392 232 8 64 65024 plain", "", ""),
    "phi-4": ("40 5120 17920 40 10 128 100352", "", ""),
    "pythia-12b": ("36 5120 20480 40 40 128 50688 plain", "", ""),
    "olmo2-7b": ("32 4096 11008 32 32 128 100352", "", ""),
    "olmo2-13b": ("40 5120 13824 40 40 128 100352", "", ""),
    "olmo3-7b": ("32 4096 11008 32 32 128 100278", "", ""),
    "olmo3-32b": ("64 5120 27648 40 8 128 100278", "", ""),
    "gpt3-175b": ("96 12288 49152 96 96 128 50257 tied plain", "", ""),
    "bloom-176b": ("70 14336 57344 112 112 128 250880 tied plain", "", ""),
    "opt-175b": ("96 12288 49152 96 96 128 50272 tied plain", "", ""),
    "megatron-530b": ("105 20480 81920 128 128 160 51200 tied plain", "", ""),
    "megatron-1t": ("128 25600 102400 160 160 160 51200 tied plain", "", ""),
    "grok-1": ("64 6144 0 48 8 128 131072 tied", "8 2 0 32768 0 1", ""),
}


def dense(model: ModelSpec) -> str:
    """Return the first column of a model."""
    everywhere = model.moe is not None and model.moe_layers == model.layers
    sizes = (model.layers, model.hidden, 0 if everywhere else model.ffn, model.heads, model.kv_heads, model.head_dim)
    words = (*sizes, model.vocab, *(["tied"] if model.tie_embeddings else []), *([] if model.gated_mlp else ["plain"]))
    return " ".join(map(str, words))


def experts(model: ModelSpec) -> str:
    """Return the second column of a model."""
    if model.moe is None:
        return ""
    moe = model.moe
    sizes = (moe.experts, moe.top_k, moe.shared_experts, moe.expert_ffn, moe.leading_dense_layers, moe.layer_step)
    return " ".join(map(str, sizes))


def latents(model: ModelSpec) -> str:
    """Return the third column of a model."""
    if model.mla is None:
        return ""
    mla = model.mla
    return " ".join(map(str, (mla.query_rank, mla.kv_rank, mla.nope_head_dim, mla.rope_head_dim, mla.value_head_dim)))


def test_the_table_is_the_catalog() -> None:
    """No model is without its row, and no row without its model."""
    assert sorted(SHAPES) == names("models")


@pytest.mark.parametrize("name", SHAPES)
def test_models_have_their_published_shape(name: str) -> None:
    """Sizes, ties, matrices of the MLP, which layers have experts, and latents."""
    model = load_model(name)
    assert (dense(model), experts(model), latents(model)) == SHAPES[name]

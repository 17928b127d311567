"""The model types of transformers that can be planned: what each implies, and where its keys differ."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cost_models.specs.hf_keys import MAX_CONTEXT, MAX_HEADS, MAX_LAYERS, Keys
from cost_models.specs.hf_layers import expert_layers, upper_layer_windows, windows
from cost_models.specs.model import ModelSpec

Fields = dict[str, Any]

_BIASED = {"qkv_bias": True, "attention_output_bias": True, "mlp_bias": True}
_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
_GPT = {"gated_mlp": False, "norm": "layernorm", **_BIASED}


@dataclass(frozen=True)
class Family:
    """How one model type is read.

    `tied` holds where the file has no tie_word_embeddings; `defaults` are class defaults of keys that published files
    leave out; `implied` are spec fields that the type alone decides; `read` gives those that further keys decide.
    """

    read: Callable[[Keys, Fields], Fields] = lambda _, __: {}
    context: int = 2048
    tied: bool = False
    defaults: Mapping[str, int] = field(default_factory=dict)
    implied: Mapping[str, Any] = field(default_factory=dict)
    four_times: bool = False  # the MLP is 4 * hidden wide where the file does not say
    latent: bool = False  # attention has latents, and `read` gives the width of a head


def model_of(keys: Keys, family: Family, name: str, *, tied: bool) -> ModelSpec:
    """Return the model that the entries describe; `tied` is the file's own default. Raises SpecError."""
    fields = _sizes(keys, family)
    fields |= {"name": name, **family.implied, "tie_embeddings": keys.flag("tie_word_embeddings", tied)}
    fields |= family.read(keys, fields)
    if fields["heads"] % fields["kv_heads"]:
        message = f"must divide num_attention_heads {fields['heads']}, got {fields['kv_heads']}"
        keys.refuse(f"num_key_value_heads {message}")
    return ModelSpec(source=f"config.json, model type {keys.model_type}", **fields)


def _sizes(keys: Keys, family: Family) -> Fields:
    hidden = keys.whole("hidden_size", "n_embd", "n_embed", "d_model")
    heads = keys.whole("num_attention_heads", "n_head", at_most=MAX_HEADS)
    width = 4 * hidden if family.four_times else None
    return {
        "layers": keys.whole("num_hidden_layers", "n_layer", "num_layers", at_most=MAX_LAYERS),
        "hidden": hidden,
        "heads": heads,
        "kv_heads": _kv_heads(keys, heads),
        "head_dim": 0 if family.latent else _head_dim(keys, hidden, heads),
        "ffn": keys.whole("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", default=width),
        "vocab": keys.whole("vocab_size"),
        "max_seq_len": keys.whole("max_position_embeddings", "n_positions", "seq_length", at_most=MAX_CONTEXT),
    }


def _kv_heads(keys: Keys, heads: int) -> int:
    """Return num_key_value_heads; null means as many as heads, also in types with a default of their own."""
    if _is_null(keys, "num_key_value_heads"):
        return heads
    return keys.whole("num_key_value_heads", default=heads, at_most=MAX_HEADS)


def _head_dim(keys: Keys, hidden: int, heads: int) -> int:
    """Return head_dim, which need not be hidden / heads; null means that it is."""
    if keys.entries.get("head_dim") is not None or ("head_dim" in keys.defaults and not keys.has("head_dim")):
        return keys.whole("head_dim")
    if hidden % heads:
        keys.refuse(f"num_attention_heads must divide hidden_size {hidden} without head_dim, got {heads}")
    return hidden // heads


def _llama(keys: Keys, _: Fields) -> Fields:
    bias = keys.flag("attention_bias", False)
    return {"qkv_bias": bias, "attention_output_bias": bias, "mlp_bias": keys.flag("mlp_bias", False)}


def _mistral(keys: Keys, fields: Fields) -> Fields:
    return windows(keys, fields["layers"], default_window=4096)


def _phi3(keys: Keys, fields: Fields) -> Fields:
    return windows(keys, fields["layers"])


def _mixtral(keys: Keys, fields: Fields) -> Fields:
    moe = _experts(keys, fields["ffn"]) | expert_layers(keys, [True] * fields["layers"])
    return {"moe": moe, **windows(keys, fields["layers"])}


def _qwen2(keys: Keys, fields: Fields) -> Fields:
    return {"qkv_bias": True, **upper_layer_windows(keys, fields["layers"])}


def _qwen3(keys: Keys, fields: Fields) -> Fields:
    return _llama(keys, fields) | upper_layer_windows(keys, fields["layers"])


def _qwen2_moe(keys: Keys, fields: Fields) -> Fields:
    shared = keys.whole("shared_expert_intermediate_size", default=0, at_least=0)
    moe = _qwen_experts(keys, fields["layers"])
    if shared:
        moe |= {"shared_experts": 1, "shared_ffn": shared, "shared_expert_gate": True}
    bias = keys.flag("qkv_bias", True)
    return {"qkv_bias": bias, "moe": moe, **upper_layer_windows(keys, fields["layers"])}


def _qwen3_moe(keys: Keys, fields: Fields) -> Fields:
    return _qwen3(keys, fields) | {"moe": _qwen_experts(keys, fields["layers"])}


def _gemma2(keys: Keys, fields: Fields) -> Fields:
    return _llama(keys, fields) | windows(keys, fields["layers"], default_step=2, default_window=4096)


def _gemma3(keys: Keys, fields: Fields) -> Fields:
    step = keys.whole("sliding_window_pattern", "_sliding_window_pattern", default=6, at_most=MAX_LAYERS)
    return _llama(keys, fields) | windows(keys, fields["layers"], default_step=step, default_window=4096)


def _olmo3(keys: Keys, fields: Fields) -> Fields:
    return _llama(keys, fields) | windows(keys, fields["layers"], default_step=4, default_window=4096)


def _olmoe(keys: Keys, fields: Fields) -> Fields:
    moe = _experts(keys, fields["ffn"]) | expert_layers(keys, [True] * fields["layers"])
    return _llama(keys, fields) | {"moe": moe}


def _gpt_oss(keys: Keys, fields: Fields) -> Fields:
    bias = keys.flag("attention_bias", True)
    moe = _experts(keys, fields["ffn"]) | expert_layers(keys, [True] * fields["layers"])
    return {
        "qkv_bias": bias,
        "attention_output_bias": bias,
        "moe": moe | {"router_bias": True, "expert_bias": True},
        **windows(keys, fields["layers"], default_step=2, default_window=128),
    }


def _deepseek(keys: Keys, fields: Fields) -> Fields:
    """DeepSeek's attention and experts; the file's num_key_value_heads and head_dim mean nothing here."""
    if keys.flag("attention_bias", False):
        keys.refuse("attention_bias must be false with latent attention: its biases are not planned")
    mla = {
        "query_rank": 0 if _is_null(keys, "q_lora_rank") else keys.whole("q_lora_rank"),
        "kv_rank": keys.whole("kv_lora_rank"),
        "nope_head_dim": keys.whole("qk_nope_head_dim"),
        "rope_head_dim": keys.whole("qk_rope_head_dim"),
        "value_head_dim": keys.whole("v_head_dim"),
    }
    return {
        "kv_heads": fields["heads"],
        "head_dim": mla["nope_head_dim"] + mla["rope_head_dim"],
        "mla": mla,
        "moe": _shared_experts(keys, fields["layers"], router_bias=keys.model_type != "deepseek_v2"),
        "mtp_layers": _mtp_layers(keys),
    }


def _glm4_moe(keys: Keys, fields: Fields) -> Fields:
    return {
        "qkv_bias": keys.flag("attention_bias", False),
        "qk_norm": "head" if keys.flag("use_qk_norm", False) else "none",
        "moe": _shared_experts(keys, fields["layers"], router_bias=True),
        "mtp_layers": _mtp_layers(keys),
    }


def _llama4(keys: Keys, fields: Fields) -> Fields:
    """Llama 4: intermediate_size is the width of an expert, intermediate_size_mlp that of a dense layer."""
    layers = fields["layers"]
    step = keys.whole("interleave_moe_layer_step", default=1, at_most=MAX_LAYERS)
    listed = keys.listed("moe_layers", of=int)
    with_experts = set(range(step - 1, layers, step)) if listed is None else set(listed)
    moe = _experts(keys, fields["ffn"]) | expert_layers(keys, [index in with_experts for index in range(layers)])
    bias = keys.flag("attention_bias", False)
    rope_step = keys.whole("no_rope_layer_interval", default=4, at_most=MAX_LAYERS)
    window = windows(keys, layers, default_step=rope_step, default_window=8192)
    return {
        "ffn": keys.whole("intermediate_size_mlp", default=fields["ffn"]),
        "qkv_bias": bias,
        "attention_output_bias": bias,
        "moe": moe | {"shared_experts": 1, "shared_ffn": fields["ffn"]},
        **window,
        **({"window_kind": "chunked"} if window else {}),
    }


def _falcon(keys: Keys, fields: Fields) -> Fields:
    new = keys.flag("new_decoder_architecture", False)
    one_head = not new and keys.flag("multi_query", True)  # whatever num_kv_heads says
    kv_heads = keys.whole("num_kv_heads", default=fields["heads"], at_most=MAX_HEADS) if new else fields["heads"]
    parallel = new or keys.flag("parallel_attn", True)
    norms = keys.whole("num_ln_in_parallel_attn", default=2 if new else 1, at_most=2)
    bias = keys.flag("bias", False)
    return {
        "kv_heads": 1 if one_head else kv_heads,
        "parallel_block": parallel,
        "shared_norm": parallel and norms == 1,
        "positions": "alibi" if keys.flag("alibi", False) else "rope",
        **dict.fromkeys(_BIASED, bias),
    }


def _gpt_neox(keys: Keys, _: Fields) -> Fields:
    bias = keys.flag("attention_bias", True)
    parallel = keys.flag("use_parallel_residual", True)
    return {"parallel_block": parallel, "qkv_bias": bias, "attention_output_bias": bias}


def _gpt_bigcode(keys: Keys, fields: Fields) -> Fields:
    return {"kv_heads": 1 if keys.flag("multi_query", True) else fields["heads"]}


def _opt(keys: Keys, fields: Fields) -> Fields:
    if not keys.flag("do_layer_norm_before", True):
        keys.refuse("do_layer_norm_before must be true: norms on the outputs without a final one are not planned")
    if keys.whole("word_embed_proj_dim", default=fields["hidden"]) != fields["hidden"]:
        keys.refuse(f"word_embed_proj_dim must be hidden_size {fields['hidden']}: no projection is planned")
    return dict.fromkeys(_BIASED, keys.flag("enable_bias", True))


def _experts(keys: Keys, width: int) -> Fields:
    experts = keys.whole(*_EXPERTS, at_most=MAX_HEADS)
    top_k = keys.whole("num_experts_per_tok", at_most=MAX_HEADS)
    if top_k > experts:
        keys.refuse(f"num_experts_per_tok must be <= the {experts} experts, got {top_k}")
    return {"experts": experts, "top_k": top_k, "expert_ffn": width}


def _qwen_experts(keys: Keys, layers: int) -> Fields:
    """Every decoder_sparse_step-th layer has experts, those of mlp_only_layers never."""
    step = keys.whole("decoder_sparse_step", default=1, at_most=MAX_LAYERS)
    dense = set(keys.listed("mlp_only_layers", of=int) or [])
    flags = [index not in dense and (index + 1) % step == 0 for index in range(layers)]
    return _experts(keys, keys.whole("moe_intermediate_size")) | expert_layers(keys, flags)


def _shared_experts(keys: Keys, layers: int, *, router_bias: bool) -> Fields | None:
    """The experts of DeepSeek and GLM, None in a dense model of theirs."""
    if not keys.whole(*_EXPERTS, default=0, at_least=0, at_most=MAX_HEADS):
        return None
    width = keys.whole("moe_intermediate_size")
    shared = keys.whole("n_shared_experts", default=0, at_least=0, at_most=1000)
    first = keys.whole("first_k_dense_replace", default=0, at_least=0, at_most=MAX_LAYERS)
    step = keys.whole("moe_layer_freq", default=1, at_most=MAX_LAYERS)
    flags = [index >= first and index % step == 0 for index in range(layers)]
    moe = _experts(keys, width) | expert_layers(keys, flags) | {"router_bias": router_bias}
    return moe | {"shared_experts": shared, "shared_ffn": shared * width}


def _mtp_layers(keys: Keys) -> int:
    return keys.whole("num_nextn_predict_layers", "num_mtp_layers", default=0, at_least=0, at_most=100)


def _is_null(keys: Keys, key: str) -> bool:
    return keys.has(key) and keys.entries[key] is None


_KV8 = {"num_key_value_heads": 8}
_NORMS_BOTH = {"norm_placement": "both"}
_OLMO = {"norm_placement": "after", "qk_norm": "projection"}
_QWEN2 = Family(_qwen2, context=32768)
_QWEN3 = Family(_qwen3, context=32768, defaults={"head_dim": 128}, implied={"qk_norm": "head"})
_QWEN3_MOE = Family(_qwen3_moe, context=32768, implied={"qk_norm": "head"})
_DEEPSEEK_V3 = Family(_deepseek, context=4096, latent=True, defaults={"q_lora_rank": 1536})
_GEMMA_DEFAULTS = {"head_dim": 256, "num_attention_heads": 8, "num_key_value_heads": 4}

FAMILIES: dict[str, Family] = {
    "bloom": Family(tied=True, four_times=True, implied={**_GPT, "positions": "alibi", "embedding_norm": True}),
    "deepseek_v2": Family(_deepseek, latent=True, defaults={"q_lora_rank": 1536}),
    "deepseek_v3": _DEEPSEEK_V3,
    "falcon": Family(_falcon, tied=True, four_times=True, implied={"gated_mlp": False, "norm": "layernorm"}),
    "gemma": Family(_llama, context=8192, tied=True, defaults={"head_dim": 256}),
    "gemma2": Family(_gemma2, context=8192, tied=True, defaults=_GEMMA_DEFAULTS, implied=_NORMS_BOTH),
    "gemma3_text": Family(
        _gemma3,
        context=131_072,
        tied=True,
        defaults={**_GEMMA_DEFAULTS, "vocab_size": 262_208},
        implied={**_NORMS_BOTH, "qk_norm": "head"},
    ),
    "glm4_moe": Family(_glm4_moe, context=131_072, defaults=_KV8),
    "gpt2": Family(tied=True, context=1024, four_times=True, implied={**_GPT, "positions": "learned"}),
    "gpt_bigcode": Family(
        _gpt_bigcode, tied=True, context=1024, four_times=True, implied={**_GPT, "positions": "learned"}
    ),
    "gpt_neox": Family(_gpt_neox, implied=_GPT),
    "gpt_oss": Family(_gpt_oss, context=131_072, defaults={**_KV8, "head_dim": 64}, implied={"attention_sinks": True}),
    "gptj": Family(
        four_times=True,
        implied={
            "gated_mlp": False,
            "norm": "layernorm",
            "parallel_block": True,
            "shared_norm": True,
            "mlp_bias": True,
            "head_bias": True,
        },
    ),
    "granite": Family(_llama),
    "kimi_k2": _DEEPSEEK_V3,
    "llama": Family(_llama),
    "llama4_text": Family(_llama4, context=131_072, defaults={**_KV8, "head_dim": 128}),
    "mistral": Family(_mistral, context=131_072, defaults=_KV8),
    "mixtral": Family(_mixtral, context=131_072, defaults=_KV8),
    "olmo2": Family(_llama, implied=_OLMO),
    "olmo3": Family(_olmo3, implied=_OLMO),
    "olmoe": Family(_olmoe, context=4096, implied={"qk_norm": "projection"}),
    "opt": Family(
        _opt,
        tied=True,
        implied={"gated_mlp": False, "norm": "layernorm", "positions": "learned", "position_offset": 2},
    ),
    "phi3": Family(_phi3, context=4096),
    "qwen2": _QWEN2,
    "qwen2_5_vl": _QWEN2,
    "qwen2_5_vl_text": _QWEN2,
    "qwen2_moe": Family(_qwen2_moe, context=32768),
    "qwen2_vl": _QWEN2,
    "qwen2_vl_text": _QWEN2,
    "qwen3": _QWEN3,
    "qwen3_moe": _QWEN3_MOE,
    "qwen3_vl_moe_text": _QWEN3_MOE,
    "qwen3_vl_text": _QWEN3,
}

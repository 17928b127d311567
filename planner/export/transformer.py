"""The architecture of a model as Megatron's arguments."""

from planner.document import Configuration
from planner.export.arguments import Value

__all__ = ["transformer_arguments"]

POSITIONS = {"rope": "rope", "learned": "learned_absolute", "alibi": "none", "none": "none"}


def transformer_arguments(configuration: Configuration) -> dict[str, Value]:
    """The model, by the names of Megatron's arguments; what they cannot say (windows, sinks, ALiBi) is left out."""
    model = configuration.model
    arguments: dict[str, Value] = {
        "num_layers": model.layers,
        "hidden_size": model.hidden,
        "ffn_hidden_size": model.ffn,
        "num_attention_heads": model.heads,
        "kv_channels": model.head_dim,
        "max_position_embeddings": max(model.max_seq_len, configuration.workload.seq_len),
        "position_embedding_type": POSITIONS[model.positions],
        "normalization": "RMSNorm" if model.norm == "rmsnorm" else "LayerNorm",
        "swiglu": model.gated_mlp,
        "disable_bias_linear": not model.mlp_bias,
        "add_qkv_bias": model.qkv_bias,
        "qk_layernorm": model.qk_norm != "none",
        "untie_embeddings_and_output_weights": not model.tie_embeddings,
        "vocab_size": model.vocab,
        "make_vocab_size_divisible_by": configuration.recipe.vocab_multiple,
    }
    if model.kv_heads < model.heads:
        arguments |= {"group_query_attention": True, "num_query_groups": model.kv_heads}
    if model.mtp_layers:
        arguments["mtp_num_layers"] = model.mtp_layers
    return arguments | _experts(configuration) | _latent_attention(configuration)


def _experts(configuration: Configuration) -> dict[str, Value]:
    moe = configuration.model.moe
    if moe is None:
        return {}
    arguments: dict[str, Value] = {
        "num_experts": moe.experts,
        "moe_ffn_hidden_size": moe.expert_ffn,
        "moe_router_topk": moe.top_k,
        "moe_layer_freq": "[" + ",".join(str(int(kind.moe)) for kind in configuration.model.layer_kinds) + "]",
    }
    if moe.shared_experts:
        arguments["moe_shared_expert_intermediate_size"] = moe.shared_ffn
    return arguments


def _latent_attention(configuration: Configuration) -> dict[str, Value]:
    mla = configuration.model.mla
    if mla is None:
        return {}
    return {
        "multi_latent_attention": True,
        **({"q_lora_rank": mla.query_rank} if mla.query_rank else {}),
        "kv_lora_rank": mla.kv_rank,
        "qk_head_dim": mla.nope_head_dim,
        "qk_pos_emb_head_dim": mla.rope_head_dim,
        "v_head_dim": mla.value_head_dim,
    }

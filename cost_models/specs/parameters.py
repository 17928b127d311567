"""Parameters of a model, counted exactly: matrices, biases, norms, routers, sinks; the vocabulary unpadded."""

from typing import Any

import numpy as np

from cost_models.specs.layer_pattern import LayerKind
from cost_models.specs.mla import MlaSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.moe import MoeSpec


def parameters(model: ModelSpec, *, mtp: bool = False) -> int:
    """Return the parameters of a model, tied embeddings once; MTP layers only with `mtp`.

    >>> from cost_models.specs.catalog import load_model
    >>> parameters(load_model("llama3-8b"))
    8030261248
    """
    of_layers = sum(layer_parameters(model, kind) for kind in model.layer_kinds)
    of_mtp = model.mtp_layers * mtp_layer_parameters(model) if mtp else 0
    return embedding_parameters(model) + of_layers + of_mtp + head_parameters(model)


def active_parameters(model: ModelSpec, *, mtp: bool = False) -> int:
    """Return the parameters that one token passes: all of them without the experts that it is not routed to."""
    if model.moe is None:
        return parameters(model, mtp=mtp)
    layers = model.moe_layers + (model.mtp_layers * model.mtp_kind.moe if mtp else 0)
    idle = model.moe.experts - model.moe.top_k
    return parameters(model, mtp=mtp) - layers * idle * expert_parameters(model, model.moe)


def layer_parameters(model: ModelSpec, kind: LayerKind) -> int:
    """Return the parameters of one layer of a kind: its norms, attention, and MLP or experts."""
    mlp = _moe(model, model.moe) if kind.moe and model.moe else _mlp(model, model.ffn, bias=model.mlp_bias)
    norms = {"before": 1 if model.shared_norm else 2, "after": 2, "both": 4}[model.norm_placement]
    return norms * norm_parameters(model, model.hidden) + _attention(model) + mlp


def mtp_layer_parameters(model: ModelSpec) -> int:
    """Return the parameters of one MTP layer: two norms, a 2h x h projection, a layer, a norm before the shared head.

    DeepSeek-V3 (arXiv 2412.19437), section 2.2: embedding and head are the model's own.
    """
    projection = 2 * model.hidden * model.hidden
    return projection + 3 * norm_parameters(model, model.hidden) + layer_parameters(model, model.mtp_kind)


def embedding_parameters(model: ModelSpec) -> int:
    """Return the parameters of the token embedding, learned positions and the norm behind them."""
    norm = norm_parameters(model, model.hidden) if model.embedding_norm else 0
    return (model.vocab + model.position_rows) * model.hidden + norm


def head_parameters(model: ModelSpec) -> int:
    """Return the parameters of the final norm and of the output head, whose matrix may be the embedding's."""
    matrix = 0 if model.tie_embeddings else model.vocab * model.hidden
    return norm_parameters(model, model.hidden) + matrix + (model.vocab if model.head_bias else 0)


def expert_parameters(model: ModelSpec, moe: MoeSpec) -> int:
    """Return the parameters of one routed expert."""
    return _mlp(model, moe.expert_ffn, bias=moe.expert_bias)


def norm_parameters(model: ModelSpec, width: int) -> int:
    """Return the parameters of one norm: a weight, and a bias in a layer norm."""
    return (2 if model.norm == "layernorm" else 1) * width


def _attention(model: ModelSpec) -> int:
    output_bias = model.hidden if model.attention_output_bias else 0
    sinks = model.heads if model.attention_sinks else 0
    if model.mla is not None:
        return _latent_attention(model, model.mla) + output_bias + sinks
    query, key = model.heads * model.head_dim, model.kv_heads * model.head_dim
    qkv_bias = query + 2 * key if model.qkv_bias else 0
    normed_width = {"none": 0, "head": 2 * model.head_dim, "projection": query + key}[model.qk_norm]
    matrices = model.hidden * (2 * query + 2 * key)
    return matrices + qkv_bias + norm_parameters(model, normed_width) + output_bias + sinks


def _latent_attention(model: ModelSpec, mla: MlaSpec) -> int:
    """Return the parameters of DeepSeek's attention with the norms of its latents, without an output bias."""
    query = model.heads * mla.query_head_dim
    of_query = model.hidden * query
    if mla.query_rank:
        of_query = mla.query_rank * (model.hidden + query) + norm_parameters(model, mla.query_rank)
    down = model.hidden * (mla.kv_rank + mla.rope_head_dim) + norm_parameters(model, mla.kv_rank)
    up = mla.kv_rank * model.heads * (mla.nope_head_dim + mla.value_head_dim)
    return of_query + down + up + model.heads * mla.value_head_dim * model.hidden


def _moe(model: ModelSpec, moe: MoeSpec) -> int:
    """Return the parameters of router, routed and shared experts of a layer."""
    router = model.hidden * moe.experts + (moe.experts if moe.router_bias else 0)
    shared = _mlp(model, moe.shared_ffn, bias=model.mlp_bias) if moe.shared_experts else 0
    gate = model.hidden if moe.shared_expert_gate else 0
    return router + moe.experts * expert_parameters(model, moe) + shared + gate


def _mlp(model: ModelSpec, width: int, *, bias: bool) -> int:
    first = 2 if model.gated_mlp else 1
    return (first + 1) * model.hidden * width + (first * width + model.hidden if bias else 0)


def padded_vocab(vocab: Any, multiple: int, tp: Any) -> Any:
    """Vocabulary as the framework pads it, float64 of the shape of tp: the next multiple of `multiple` times tp."""
    step = multiple * np.asarray(tp, dtype=np.float64)
    return np.ceil(vocab / step) * step

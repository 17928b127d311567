"""Model FLOPs of a training step: what the mathematics asks for, whatever the hardware does.

Matrix products of every parameter and attention, forward and twice that backward; no recompute, no embedding look-up,
vocabulary unpadded. Attention counts half under a causal mask.
"""

from cost_models.specs.layer_pattern import LayerKind
from cost_models.specs.model import ModelSpec
from cost_models.specs.workload import WorkloadSpec

__all__ = ["model_flops"]

FORWARD_AND_BACKWARD = 3  # the backward of a product is two of its size


def model_flops(model: ModelSpec, workload: WorkloadSpec, *, causal: bool = True) -> float:
    """FLOPs of one step over the whole job; `causal` counts half of the attention scores.

    PaLM (Chowdhery et al. 2022), appendix B: 6 N + 12 L H Q T a token, N without look-up tables, norms and biases; of
    routed experts those that a token is sent to. A window of w tokens leaves s*w - w*w/2 causal pairs of a sequence,
    chunks of w tokens half a square each.
    """
    kinds = (*model.layer_kinds, *(model.mtp_kind,) * model.mtp_layers)
    matrices = sum(_layer_matrices(model, kind) for kind in kinds) + model.mtp_layers * 2 * model.hidden**2
    per_token = 2.0 * (matrices + (1 + model.mtp_layers) * model.hidden * model.vocab)
    value_dim = model.mla.value_head_dim if model.mla else model.head_dim
    keys = sum(_keys(model, workload.seq_len, kind.window) for kind in kinds)
    scores = 2.0 * model.heads * (model.head_dim + value_dim) * keys
    if causal:
        scores /= 2.0
    return FORWARD_AND_BACKWARD * workload.tokens * (per_token + scores)


def _keys(model: ModelSpec, seq_len: int, window: int) -> float:
    """Keys that a query meets, twice the causal mean: the whole sequence without a window."""
    if window and model.window_kind == "chunked":
        chunks, rest = divmod(seq_len, window)
        return (chunks * window**2 + rest**2) / seq_len
    seen = min(window, seq_len) if window else seq_len
    return 2.0 * seen - seen * seen / seq_len


def _layer_matrices(model: ModelSpec, kind: LayerKind) -> int:
    """Parameters of one layer that stand in matrix products with a token."""
    matrices = 3 if model.gated_mlp else 2
    if kind.moe and model.moe:
        active = model.moe.top_k * model.moe.expert_ffn + model.moe.shared_ffn
        mlp = model.hidden * (matrices * active + model.moe.experts)
    else:
        mlp = model.hidden * matrices * model.ffn
    return _attention_matrices(model) + mlp


def _attention_matrices(model: ModelSpec) -> int:
    query = model.heads * model.head_dim
    if model.mla is None:
        return model.hidden * 2 * (query + model.kv_heads * model.head_dim)
    mla = model.mla
    of_query = mla.query_rank * (model.hidden + query) if mla.query_rank else model.hidden * query
    down = model.hidden * (mla.kv_rank + mla.rope_head_dim)
    up = mla.kv_rank * model.heads * (mla.nope_head_dim + mla.value_head_dim)
    return of_query + down + up + model.heads * mla.value_head_dim * model.hidden

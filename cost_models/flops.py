"""Model FLOPs of a training step: what the mathematics asks for, whatever the hardware does.

Matrix products of every parameter and attention, forward and twice that backward; no recompute, no embedding look-up,
vocabulary unpadded. Attention counts half under a causal mask.
"""

from cost_models.specs.model import ModelSpec
from cost_models.specs.workload import WorkloadSpec

__all__ = ["model_flops"]

FORWARD_AND_BACKWARD = 3  # the backward of a product is two of its size


def model_flops(model: ModelSpec, workload: WorkloadSpec, *, causal: bool = True) -> float:
    """FLOPs of one step over the whole job; `causal` counts half of the attention scores.

    PaLM (Chowdhery et al. 2022), appendix B: 6 N + 12 L H Q T a token, N without look-up tables, norms and biases.
    """
    per_token = 2.0 * (model.layers * _layer_matrices(model) + model.hidden * model.vocab)
    scores = 4.0 * model.layers * model.heads * model.head_dim * workload.seq_len
    if causal:
        scores /= 2.0
    return FORWARD_AND_BACKWARD * workload.tokens * (per_token + scores)


def _layer_matrices(model: ModelSpec) -> int:
    """Parameters of one layer that stand in matrix products."""
    attention = 2 * (model.heads + model.kv_heads) * model.head_dim
    mlp = (3 if model.gated_mlp else 2) * model.ffn
    return model.hidden * (attention + mlp)

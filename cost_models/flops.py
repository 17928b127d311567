"""Model FLOPs of a training step: what the mathematics asks for, whatever the hardware does.

Matrix products of every active parameter and attention, forward and twice that backward; no recompute, no embedding
look-up. Attention counts half under a causal mask.
"""

from cost_models.specs.model import ModelSpec
from cost_models.specs.workload import WorkloadSpec

__all__ = ["model_flops", "parameters"]

FORWARD_AND_BACKWARD = 3


def model_flops(model: ModelSpec, workload: WorkloadSpec, *, causal: bool = True) -> float:
    """FLOPs of one step over the whole job; `causal` counts half of the attention scores (PaLM, appendix B)."""
    per_token = 2.0 * (model.layers * _layer_products(model) + model.hidden * model.vocab)
    scores = 4.0 * model.layers * model.heads * model.head_dim * workload.seq_len
    if causal:
        scores /= 2.0
    return FORWARD_AND_BACKWARD * workload.tokens * (per_token + scores)


def parameters(model: ModelSpec) -> int:
    """Parameters of the model, vocabulary unpadded, tied embeddings counted once."""
    from cost_models import memory, symbols
    from cost_models.layers import embedding, head, layer
    from cost_models.specs.recipe import FrameworkRecipe

    recipe = FrameworkRecipe.model_construct(flash_attention=True, dropout=False)
    blocks = (layer(model, recipe), embedding(model, recipe), head(model, recipe))
    values = {
        symbols.hidden: model.hidden,
        symbols.ffn: model.ffn,
        symbols.heads: model.heads,
        symbols.kv_heads: model.kv_heads,
        symbols.head_dim: model.head_dim,
        symbols.padded_vocab: model.vocab,
        symbols.max_positions: model.max_seq_len,
        symbols.tp: 1,
    }
    of_layer, of_embedding, of_head = (int(memory.block_parameters(block).subs(values)) for block in blocks)
    shared = model.vocab * model.hidden if model.tie_embeddings else 0
    return model.layers * of_layer + of_embedding + of_head - shared


def _layer_products(model: ModelSpec) -> int:
    """Parameters of one layer that stand in matrix products."""
    query = model.heads * model.head_dim
    attention = model.hidden * (2 * query + 2 * model.kv_heads * model.head_dim)
    return attention + model.hidden * model.ffn * (3 if model.gated_mlp else 2)

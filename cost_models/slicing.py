"""What cutting the sequences of a micro-batch into slices adds: attention that grows, what pipeline ranks share out.

A slice attends to its own keys and to those of the slices before it. Schedules that leave the slices as they are
(TeraPipe, Seq1F1B) are replayed with the attention's seconds apart. SlimPipe (arXiv 2504.14519) spreads the attention
of the slices that its pipeline ranks hold at one time evenly over them, and embedding and head by their vocabulary.
"""

from typing import Any

from cost_models import symbols as sym
from cost_models.attention import pipeline_exchange_bytes
from cost_models.blocks import ZERO, Operator, residual_bytes, sequence_shard
from cost_models.layers import Unit, chain
from cost_models.operators import all_gather_s, all_to_all_s, reduce_scatter_s
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe

__all__ = ["ATTENTION", "attention_seconds", "pipeline_exchange_costs", "stage_seconds"]

Expr = Any
ATTENTION = ("forward_attention_s", "backward_attention_s")


def attention_seconds(name: str, unit: Unit) -> dict[str, Expr]:
    """Seconds of the core attention of one slice in a unit: of its passes, and of what the recompute set runs again."""
    core = [operator for operator in unit.operators if operator.name == "core attention"]
    return {
        f"{name}_forward_attention_s": sum((operator.forward_s for operator in core), start=ZERO),
        f"{name}_backward_attention_s": sum((operator.input_grad_s for operator in core), start=ZERO),
        f"{name}_recompute_attention_s": sum((_recomputed(operator) * operator.forward_s for operator in core), ZERO),
    }


def _recomputed(operator: Operator) -> Expr:
    kept = 1 - sym.recompute_full
    for module in operator.modules:
        kept *= 1 - sym.RECOMPUTE_FLAGS[module]
    return 1 - kept


def stage_seconds() -> dict[str, Expr]:
    """Seconds of one micro-batch in a stage: the attention that grows from slice to slice, and what ranks exchange.

    None grows where ranks spread it evenly.
    """
    forward, backward = (
        sum(count * sym.PARTS[f"{unit}_{name}"] for unit, count in sym.HELD.items()) for name in ATTENTION
    )
    again = sym.recompute_layers * sym.PARTS["layer_recompute_attention_s"]
    ends = ("embedding", "head")
    again += sym.recompute_ends * sum(sym.HELD[end] * sym.PARTS[f"{end}_recompute_attention_s"] for end in ends)
    exchanged = sum(count * sym.PARTS[f"{unit}_pipeline_exchange_s"] for unit, count in sym.HELD.items())
    return {
        "forward_attention_s": (1 - sym.spread) * forward,
        "backward_attention_s": (1 - sym.spread) * (backward + again),
        "pipeline_exchange_s": 2 * exchanged,
    }


def pipeline_exchange_costs(model: ModelSpec, recipe: FrameworkRecipe) -> dict[str, Expr]:
    """Seconds that pipeline ranks exchange to share out a unit, one micro-batch, forward or backward; 0 unless spread.

    Of the attention, queries and outputs of a slice at most (`pipeline_exchange_bytes`), beside nothing. Of embedding
    and head, the hidden states of every slice go to (or come from) all ranks, which hold a share of 1/pp each; for the
    head each of them gathers them over TP too, which the share of the head's own gather does not cover.
    """
    layers = len(chain(model, recipe).layer.layers)
    layer = layers * all_to_all_s(pipeline_exchange_bytes(model), sym.pp, sym.pp_stride)
    end = all_gather_s(residual_bytes / sequence_shard, sym.pp, sym.pp_stride)
    head = end + sym.sequence_parallel * reduce_scatter_s(residual_bytes, sym.tp, 1)
    units = {"layer": layer, "embedding": sym.pp * end, "head": sym.pp * head}
    passes = sym.spread * sym.seq_len / sym.slice_len
    return {f"{name}_pipeline_exchange_s": passes * seconds for name, seconds in units.items()}

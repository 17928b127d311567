"""Names that expressions and what reads them share. It knows no sympy: a planner that finds its expressions kept
needs none."""

from typing import get_args

from cost_models.specs.kernel_tables import ElementwiseKind

__all__ = ["COMMUNICATIONS", "ELEMENTWISE_KINDS", "RECOMPUTE_MODULES", "elementwise_name", "recompute_flag"]

# The groups whose collectives are within a micro-batch.
COMMUNICATIONS = ("tensor_parallel", "context_parallel", "expert_parallel")

# What a recompute set can hold (design, section 2), and what it does.
RECOMPUTE_MODULES = {
    "norm": "norm outputs are recomputed",
    "activation": "the activation's output is recomputed",
    "core_attention": "the attention scores are recomputed",
    "mla_up_proj": "the up projections of latent attention are recomputed",
    "mlp": "the MLP is recomputed",
    "moe": "router, dispatch and routed experts are recomputed",
    "shared_experts": "the shared experts are recomputed",
    "full": "the whole layer is recomputed from its input",
}


def recompute_flag(module: str) -> str:
    """The name of the flag that says that a module is recomputed."""
    return f"recompute_{module}"


ELEMENTWISE_KINDS: tuple[ElementwiseKind, ...] = get_args(ElementwiseKind)


def elementwise_name(kind: ElementwiseKind) -> str:
    """Name of the operator that stands for a kind of memory-bound work in cost expressions.

    >>> elementwise_name("norm_forward"), elementwise_name("other")
    ('elementwise_norm_forward_s', 'elementwise_s')
    """
    return "elementwise_s" if kind == "other" else f"elementwise_{kind}_s"

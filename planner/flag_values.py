"""Names that flags of planning choose from. It loads nothing: completion uses it."""

__all__ = ["SEARCHABLE", "TARGETS"]

TARGETS = (
    "any",
    "megatron",
    "bridge",
    "torchtitan",
    "deepspeed",
    "accelerate",
    "trainer",
    "automodel",
    "nanotron",
    "axolotl",
    "maxtext",
    "runtime",
)
"""What a plan can be for: any open launcher, one of them, or this project's own runtime."""
SEARCHABLE = ("precision", "optimizer", "loss", "offload", "groups", "meshes")
"""What is searched on request only: variants of the recipe, and knobs that cost time and rarely win."""

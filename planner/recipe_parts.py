"""Parts of a recipe that are a choice: precision of the products, states of the optimizer, form of the loss."""

from collections.abc import Mapping

from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.rules import OPTIMIZERS, PRECISIONS

__all__ = ["LOSSES", "PARTS", "loss_of", "with_loss", "with_optimizer"]

BLOCK_OF_8_BIT_MOMENTS = 256  # values that share an fp32 scale (Dettmers et al., 8-bit Optimizers)
# Bytes per parameter of the two moments.
MOMENT_BYTES: Mapping[str, float] = {
    "adamw": 8.0,
    "adamw-8bit": 2.0 * (1.0 + 4.0 / BLOCK_OF_8_BIT_MOMENTS),
    "precision-aware": 4.0,
}
BF16_BYTES = 2.0

CHUNKS_OF_A_LOSS = 8  # torchtune's CEWithChunkedOutputLoss
# Most that one logit takes at a time and what moves for it, bytes. Plain: PyTorch's cross_entropy (bf16 logits 2, fp32
# copy 4, log-probabilities 4, gradient 2; cast 6, log-softmax 8, gradient 10). Fused: logits and their gradient, read
# twice and written once. Chunked: plain, a chunk of the tokens at a time.
LOSSES: Mapping[str, tuple[float, float]] = {
    "plain": (12.0, 24.0),
    "fused": (4.0, 8.0),
    "chunked": (12.0 / CHUNKS_OF_A_LOSS, 24.0),
}
FEWEST_BYTES_PLAIN, FEWEST_BYTES_FUSED = 8.0, 2.0

PARTS: Mapping[str, tuple[str, ...]] = {"precision": PRECISIONS, "optimizer": OPTIMIZERS, "loss": tuple(LOSSES)}
"""The values of each part."""


def with_optimizer(workload: WorkloadSpec, recipe: FrameworkRecipe, name: str) -> tuple[WorkloadSpec, FrameworkRecipe]:
    """The workload that is stepped by an optimizer of OPTIMIZERS, and the recipe with the bytes of its states."""
    if name == workload.optimizer:
        return workload, recipe
    changes: dict[str, float] = {"moment_bytes": MOMENT_BYTES[name]}
    if name == "precision-aware":
        changes["gradient_bytes"] = min(BF16_BYTES, recipe.gradient_bytes)
    return workload.replaced(optimizer=name), recipe.replaced(**changes)


def loss_of(recipe: FrameworkRecipe) -> str:
    """The loss of LOSSES that a recipe's bytes come nearest to."""
    if recipe.loss_bytes_per_logit >= FEWEST_BYTES_PLAIN:
        return "plain"
    return "fused" if recipe.loss_bytes_per_logit >= FEWEST_BYTES_FUSED else "chunked"


def with_loss(recipe: FrameworkRecipe, name: str) -> FrameworkRecipe:
    """The recipe with a loss of LOSSES; as it is where its own loss is one."""
    if name == loss_of(recipe):
        return recipe
    size, traffic = LOSSES[name]
    return recipe.replaced(loss_bytes_per_logit=size, loss_traffic_bytes=traffic)

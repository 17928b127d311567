"""What engines keep in memory beside states and activations, written by hand."""

from collections.abc import Mapping

from cost_models.specs.recipe import FrameworkRecipe

Row = Mapping[str, float]


def boundary_tensors(recipe: FrameworkRecipe, row: Row) -> float:
    """Tensors between pipeline ranks that one of them holds."""
    if not row["pipelined"]:
        return 0.0
    if not recipe.keeps_stage_outputs:
        return 4.0
    return 2.0 if row["has_head"] else 2.0 + row["live_layers"] * row["vpp"] / max(row["layers"], 1.0)


def optimizer_bytes(recipe: FrameworkRecipe, row: Row, part: Row, owned: float) -> float:
    """Temporaries of the step, or the copy of the largest gradient for its norm."""
    group = recipe.optimizer_group_elements
    stepped = min(owned, group) if group and row["shard_weights"] else owned
    gradients = [part["largest_matrix"]]
    gradients += [
        part[f"{end}_parameters"] + part[f"{end}_expert_parameters"]
        for end in ("embedding", "head")
        if row[f"has_{end}"]
    ]
    largest = min(max(gradients), owned) if recipe.norm_of_shards else max(gradients)
    return max(recipe.optimizer_temporary_bytes * stepped, recipe.norm_copy_bytes * largest)


def stranded_bytes(recipe: FrameworkRecipe, kept: float, backward: float, loss: float, optimizer: float) -> float:
    """What is reserved beyond the fullest phase."""
    stranded = recipe.stranded_logit_bytes * loss / recipe.loss_bytes_per_logit
    if not recipe.growing_segments:
        stranded += kept + max(loss, backward + optimizer) - max(kept + backward, kept + loss, optimizer)
    return stranded

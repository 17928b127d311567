"""`plan recipes`: the framework recipes of the catalog."""

from cli.listing import print_listing
from cost_models.specs.catalog import load_recipe, names
from cost_models.specs.recipe import FrameworkRecipe


def recipes(*, as_json: bool) -> int:
    """Prints the recipes; the exit code."""
    specs = [load_recipe(name) for name in names("frameworks")]
    states = ("weight_bytes", "gradient_bytes", "master_bytes", "moment_bytes")
    texts = {"recipe": [spec.name for spec in specs]}
    figures = {
        "B/param": [f"{sum(getattr(spec, field) for field in states):g}" for spec in specs],
        "reduce": [f"{spec.gradient_reduce_bytes:g}" for spec in specs],
        "B/logit": [f"{spec.loss_bytes_per_logit:g}" for spec in specs],
        "flash": [_mark(spec.flash_attention) for spec in specs],
        "graphs": [_mark(spec.cuda_graphs) for spec in specs],
        "overlap": ["+".join(_overlaps(spec)) or "-" for spec in specs],
    }
    return print_listing("recipes", specs, texts, figures, as_json=as_json)


def _mark(flag: bool) -> str:
    return "yes" if flag else "no"


def _overlaps(recipe: FrameworkRecipe) -> list[str]:
    """What runs beside compute, by the group whose collective it is."""
    flags = {"grads": recipe.overlap_gradient_reduce, "params": recipe.overlap_parameter_gather}
    return [name for name, overlaps in flags.items() if overlaps]

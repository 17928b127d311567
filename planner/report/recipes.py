"""What each variant of the recipe costs, as a table for the terminal."""

from rich.table import Table

from planner.document import PlanDocument, RecipeVariant
from planner.recipe_parts import loss_of
from planner.report.quantities import digits, gib

__all__ = ["recipes_table"]


def recipes_table(document: PlanDocument) -> Table:
    """A row for each variant that was searched, the plan's own in bold; `*`: the plan under another recipe."""
    table = Table(box=None, padding=(0, 2), pad_edge=False, header_style="dim")
    for name in ("precision", "optimizer", "loss"):
        table.add_column(name, no_wrap=True)
    for name in ("step s", "slower", "GiB", ""):
        table.add_column(name, justify="right", no_wrap=True)
    step_s = document.predicted.step_time_s
    for each in document.recipes:
        slower = f"{100 * (each.step_time_s / step_s - 1.0):+.1f} %"
        note = ("" if each.own_plan else "*") + ("" if each.fits else " too much")
        figures = (digits(each.step_time_s), slower, gib(each.device_bytes), note.strip())
        style = "bold" if _is_own(document, each) else ""
        table.add_row(each.precision, each.optimizer, each.loss, *figures, style=style)
    if not all(each.own_plan for each in document.recipes):
        table.caption = "* the plan under that recipe: none of its own can beat the plan by the gap"
        table.caption_justify = "left"
    return table


def _is_own(document: PlanDocument, variant: RecipeVariant) -> bool:
    own = (document.workload.precision, document.workload.optimizer, loss_of(document.recipe))
    return own == (variant.precision, variant.optimizer, variant.loss)

"""A list of catalog entries, as a table or as JSON."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli.output import console, print_json, print_rendered
from cost_models.specs.base import Spec


def print_listing(
    noun: str, specs: Sequence[Spec], texts: dict[str, list[str]], figures: dict[str, list[str]], *, as_json: bool
) -> int:
    """Prints the specs, whole as JSON or as a table of texts and figures by heading; the exit code."""
    if as_json:
        print_json({noun: [spec.model_dump(mode="json") for spec in specs]})
        return 0
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for index, heading in enumerate(texts):
        table.add_column(heading, no_wrap=index == 0)
    for heading in figures:
        table.add_column(heading, justify="right", no_wrap=True)
    for cells in zip(*texts.values(), *figures.values(), strict=True):
        table.add_row(*cells)
    print_rendered(table, console())
    return 0

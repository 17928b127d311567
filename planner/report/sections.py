"""What reports for the terminal are made of: headings, what stands under them, plain tables."""

from rich.box import SIMPLE_HEAD
from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

__all__ = ["body", "heading", "plain_table"]


def heading(text: str) -> RenderableType:
    """A line of its own, behind an empty one."""
    return Padding(Text(text, style="bold"), (1, 0, 0, 0), expand=False)


def body(content: RenderableType) -> RenderableType:
    """What stands under a heading."""
    return Padding(content, (0, 0, 0, 2), expand=False)


def plain_table(*texts: str, right: tuple[str, ...]) -> Table:
    """A table of columns of text, and of figures at the right."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False, header_style="dim")
    for name in texts:
        table.add_column(name)
    for name in right:
        table.add_column(name, justify="right", no_wrap=True)
    return table

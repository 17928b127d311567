"""Where results go: stdout, as text for people or as JSON for programs."""

import json
import os
import sys
from typing import Any

from rich.console import Console, RenderableType

# A pipe has no width; this is what the report looks best at.
PIPE_WIDTH = 100


def console() -> Console:
    """The console of stdout: colours and the width of the window on a terminal, neither in a pipe."""
    free = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    return Console(file=sys.stdout, width=PIPE_WIDTH if free else None, highlight=False, markup=False, emoji=False)


def print_rendered(renderable: RenderableType, to: Console) -> None:
    """Prints a renderable without the blanks that tables leave at the ends of lines."""
    print_text(rendered(renderable, to))


def rendered(renderable: RenderableType, by: Console) -> str:
    """The text that a console makes of a renderable, without the blanks that tables leave at the ends of lines."""
    with by.capture() as captured:
        by.print(renderable)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def print_json(value: Any) -> None:
    """Prints a value as JSON."""
    print_text(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n")


def print_text(text: str) -> None:
    """Prints text as it is; characters that the terminal's encoding lacks become question marks."""
    encoding = sys.stdout.encoding or "utf-8"
    sys.stdout.write(text.encode(encoding, errors="replace").decode(encoding))

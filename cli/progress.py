"""Progress on stderr: where it is shown, and the live line of a search."""

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console

from planner.request import Progress


def live_console() -> Console | None:
    """Where progress is shown: stderr; None where that is no terminal or CI is set."""
    console = Console(file=sys.stderr, highlight=False)
    shown = console.is_terminal and not console.is_dumb_terminal and not os.environ.get("CI")
    return console if shown else None


@contextmanager
def live_line() -> Iterator[Callable[[Progress], None] | None]:
    """A function that shows how far the search is; None where stderr is no terminal or CI is set."""
    console = live_console()
    if console is None:
        yield None
        return
    with console.status("reading the catalog") as status:
        yield lambda progress: status.update(line(progress))


def line(progress: Progress) -> str:
    """The line: `312 of 1,184 layouts, best 15.62 s, at most 2.1 % faster possible`."""
    seen = f"{progress.layouts_seen:,} of {progress.layouts_total:,} layouts"
    if progress.best_s is None:
        return seen
    best = f"{seen}, best {progress.best_s:.4g} s"
    if progress.bound_s is None:
        return best
    gap = max(0.0, 1 - progress.bound_s / progress.best_s)
    return f"{best}, at most {100 * gap:.1f} % faster possible"

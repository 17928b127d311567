"""`plan show FILE`: the report of a plan document."""

import sys

from cli.output import console, print_rendered, print_text
from planner.document import PlanDocument, dumps, loads, read
from planner.report.terminal import report


def show(file: str, *, as_json: bool) -> int:
    """Prints a document; the exit code. Raises DocumentError when the file does not hold one."""
    print_document(document_in(file), as_json=as_json)
    return 0


def document_in(file: str) -> PlanDocument:
    """The document in a file, `-` for standard input. Raises DocumentError when it does not hold one."""
    return loads(sys.stdin.buffer.read(), "standard input") if file == "-" else read(file)


def print_document(document: PlanDocument, *, as_json: bool) -> None:
    """Prints a document as its report or as JSON."""
    if as_json:
        print_text(dumps(document))
        return
    terminal = console()
    print_rendered(report(document, terminal.width), terminal)

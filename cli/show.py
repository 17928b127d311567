"""`plan show FILE`: the report of a plan document."""

import sys

from cli.output import console, print_rendered, print_text
from cli.report import check_report, write_plan
from planner.document import PlanDocument, dumps, loads, read
from planner.report import terminal


def show(file: str, *, report: str | None = None, profile: str | None = None, as_json: bool) -> int:
    """Prints a document, and writes its page where `report` names a file; the exit code.

    `profile` names the file of a measured one, which times the page's timeline.

    Raises DocumentError when the file does not hold one or the page cannot be written, RequestError without jinja2.
    """
    check_report(report)
    document = document_in(file)
    if report is not None:
        from planner.given_profile import timed_by

        timing = timed_by(document, profile)[1] if profile is not None else None
        write_plan(report, document, profile=timing)
    print_document(document, as_json=as_json)
    return 0


def document_in(file: str) -> PlanDocument:
    """The document in a file, `-` for standard input. Raises DocumentError when it does not hold one."""
    return loads(sys.stdin.buffer.read(), "standard input") if file == "-" else read(file)


def print_document(document: PlanDocument, *, as_json: bool) -> None:
    """Prints a document as its report or as JSON."""
    if as_json:
        print_text(dumps(document))
        return
    screen = console()
    print_rendered(terminal.report(document, screen.width), screen)

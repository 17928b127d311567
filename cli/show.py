"""`plan show FILE`: the report of a plan document, or of a study."""

import sys
from typing import TYPE_CHECKING

from cli.output import console, print_rendered, print_text
from cli.report import check_report, write_plan, write_study
from planner.document import PlanDocument, dumps, loads
from planner.document.files import MAX_DOCUMENT_BYTES, read_bytes
from planner.errors import RequestError
from planner.report import terminal
from planner.study.files import MAX_STUDY_BYTES, dumps_study, study_in

if TYPE_CHECKING:
    from planner.study.result import Study


def show(file: str, *, report: str | None = None, profile: str | None = None, as_json: bool) -> int:
    """Prints a document or a study, and writes its page where `report` names a file; the exit code.

    `profile` names the file of a measured one, which times the timeline of a plan's page.

    Raises DocumentError when the file does not hold one or the page cannot be written, RequestError without jinja2 and
    for a profile that a study has no use for.
    """
    check_report(report)
    content, source = _content(file, MAX_STUDY_BYTES)
    study = study_in(content, source)
    if study is not None:
        return _show_study(study, report, profile, as_json=as_json)
    document = loads(content, source)
    if report is not None:
        from planner.given_profile import timed_by

        timing = timed_by(document, profile)[1] if profile is not None else None
        write_plan(report, document, profile=timing)
    print_document(document, as_json=as_json)
    return 0


def _show_study(study: "Study", report: str | None, profile: str | None, *, as_json: bool) -> int:
    if profile is not None:
        message = f"--profile times the timeline of one plan, got {profile} for a study: leave it out"
        raise RequestError(message)
    if report is not None:
        write_study(report, study)
    print_study(study, as_json=as_json)
    return 0


def _content(file: str, most: int) -> tuple[bytes, str]:
    """What a file holds up to `most` bytes, `-` for standard input, and what to call it. Raises DocumentError."""
    if file == "-":
        return sys.stdin.buffer.read(), "standard input"
    return read_bytes(file, most), file


def document_in(file: str) -> PlanDocument:
    """The document in a file, `-` for standard input. Raises DocumentError when it does not hold one."""
    return loads(*_content(file, MAX_DOCUMENT_BYTES + 1))


def print_document(document: PlanDocument, *, as_json: bool) -> None:
    """Prints a document as its report or as JSON."""
    if as_json:
        print_text(dumps(document))
        return
    screen = console()
    print_rendered(terminal.report(document, screen.width), screen)


def print_study(study: "Study", *, as_json: bool) -> None:
    """Prints a study as its table or as JSON."""
    if as_json:
        print_text(dumps_study(study))
        return
    from planner.report.study import study_report

    screen = console()
    print_rendered(study_report(study, screen.width), screen)

"""`plan explain FILE`: what a plan's numbers are made of; with --why-not, why it does not have other values."""

import json
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

from cli.output import console, print_json, print_rendered
from cli.progress import live_line
from cli.show import document_in
from planner.document import PlanDocument, dumps
from planner.request import PlanRequest

if TYPE_CHECKING:
    from planner.why_not import Answer


def explain(file: str, *, stages: list[int], why_not: str | None, profile: str | None, as_json: bool) -> int:
    """Prints the formulas of a plan, of some stages or of all, or the answer to why-not; the exit code.

    Raises PlannerError or SpecError. Any answer to why-not is an answer: the exit code is 0.
    """
    if why_not is not None:
        check_why_not(why_not)
    from planner.given_profile import timed_by

    document, timing = timed_by(document_in(file), profile)
    if why_not is not None:
        from planner.fixed import request_of

        _print_answer(_answered(document, why_not, request_of(document, timing)), as_json=as_json)
        return 0
    from planner.explain.explanation import explain as explained
    from planner.report.explanation import explanation_report

    explanation = explained(document, stages or None, timing)
    if as_json:
        print_json(asdict(explanation))
    else:
        terminal = console()
        print_rendered(explanation_report(explanation, terminal.width), terminal)
    return 0


def check_why_not(text: str) -> None:
    """Nothing when the pairs can be read, so that a long search does not end in an error. Raises as `parsed` does."""
    from planner.restriction import parsed

    parsed(text)


def answer_data(document: PlanDocument, why_not: str | None, request: PlanRequest) -> dict[str, Any]:
    """The answer to why-not of a plan that was just found, as plain data; nothing where that was not asked."""
    return {} if why_not is None else {"why_not": _as_data(_answered(document, why_not, request))}


def print_answer(document: PlanDocument, why_not: str, request: PlanRequest) -> None:
    """Prints the answer to why-not of a plan that was just found."""
    _print_answer(_answered(document, why_not, request), as_json=False)


def _answered(document: PlanDocument, text: str, request: PlanRequest | None) -> "Answer":
    from planner.why_not import why_not

    with live_line() as progress:
        return why_not(document, text, request, progress)


def _print_answer(answer: "Answer", *, as_json: bool) -> None:
    from planner.report.why_not import why_not_report

    if as_json:
        print_json(_as_data(answer))
    else:
        print_rendered(why_not_report(answer), console())


def _as_data(answer: "Answer") -> dict[str, Any]:
    """The answer as plain data; the other plan is a whole document."""
    data = asdict(replace(answer, other=None))
    return {**data, "other": json.loads(dumps(answer.other)) if answer.other else None}

"""`plan` without a verb: searches and prints the plan."""

import json
import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cli.economics import asked, economics_data, economy_of, print_economics
from cli.explain import answer_data, check_why_not, print_answer
from cli.failure import DONE, INFEASIBLE, INTERRUPTED, LIMIT
from cli.output import print_json, print_text
from cli.progress import live_line
from cli.report import check_report, write_capacity, write_infeasible, write_plan
from cli.show import print_document
from cli.stats import statistics
from planner.document import PlanDocument, check_writable, dumps, write, write_text
from planner.economics import Economy
from planner.errors import InfeasibleError, Interrupted, LimitReached, RequestError
from planner.request import PlanRequest

if TYPE_CHECKING:
    from planner.capacity import Capacity
    from planner.remedies import Remedy


def plan(
    flags: dict[str, Any],
    *,
    as_json: bool,
    output: str | None,
    stats: str | None,
    why_not: str | None = None,
    advise: bool = False,
    jobs: int = 1,
    questions: dict[str, Any] | None = None,
    money: dict[str, Any] | None = None,
    upgrade_by: float = 1.25,
    report: str | None = None,
) -> int:
    """Plans what the flags ask for and prints it, or answers one of the inverse questions; the exit code.

    With `advise` also what each launcher could, and what single changes would bring; with `money` what the run comes
    to. The plan of an inverse question is that of its answer. `report` names a file for a page of what was found, also
    where that is that nothing fits.

    Raises PlannerError or SpecError. A search that was stopped early prints its best so far and warns on stderr.
    """
    check_report(report)
    economy = economy_of(money)
    question = asked(questions or {}, flags, economy)
    if question is not None:
        from cli.questions import ask

        way: dict[str, Any] = {"upgrade_by": upgrade_by, "jobs": jobs, "as_json": as_json, "output": output}
        return ask(question, flags, economy or Economy(), report=report, **way)
    for path in filter(None, (output, stats)):
        check_writable(path)
    if why_not is not None:
        check_why_not(why_not)
    started_s = time.perf_counter()
    requests, extra, found = _requests(flags, questions or {}, as_json=as_json)
    if not requests:
        if report is not None and found is not None:
            write_capacity(report, found)
        if as_json:
            print_json({"plan": None} | extra)
        return INFEASIBLE
    try:
        document, code = _searched_or_helped(requests, jobs)
    except InfeasibleError as error:
        if report is not None:
            write_infeasible(report, requests, error)
        raise
    request = next((each for each in requests if each.cluster == document.cluster), requests[0])
    request = request.replaced(workload=document.workload, recipe=document.recipe)  # those of the best variant
    wall_time_s = time.perf_counter() - started_s
    changes = None
    if advise and code == DONE:
        document, changes, code = _advised(document, request)
    if output is not None:
        write(document, output)
    if report is not None:
        told = {HEADINGS[name]: each for name, each in (changes or {}).items()}
        write_plan(report, document, told, capacity=found, economy=economy, profile=request.profile)
    if stats is not None:
        write_text(statistics(document, wall_time_s), stats)
    extra |= economics_data(document, economy)
    if as_json and (changes is not None or why_not is not None or extra):
        print_json(extra | _with_changes(document, changes) | answer_data(document, why_not, request))
        return code
    print_document(document, as_json=as_json)
    print_economics(document, economy)
    _print_changes(document, changes)
    if why_not is not None:
        print_answer(document, why_not, request)
    return code


def _requests(
    flags: dict[str, Any], questions: dict[str, Any], *, as_json: bool
) -> "tuple[Sequence[PlanRequest], dict[str, Any], Capacity | None]":
    """What is to be planned, what is told beside it as JSON, and the answer to a question, printed where it is text.

    Nothing is to be planned where a question has no answer.
    """
    from cli import capacity
    from planner.mixed import requests_of

    question = capacity.asked(questions)
    if question is not None:
        found = capacity.answered(question, questions, flags)
        if not as_json:
            capacity.print_frontier(found)
            print_text("\n" if found.request else "")
        return ([found.request] if found.request else []), {"capacity": capacity.as_data(found)}, found
    if not flags["model"]:
        message = "the model is missing: give --model NAME; `plan models` lists them"
        raise RequestError(message)
    return requests_of(flags), {}, None


Changes = dict[str, "tuple[Remedy, ...]"]
HEADINGS = {"changes": "What would make it faster or cheaper", "relief": "What would leave more memory free"}


def _with_changes(document: PlanDocument, changes: Changes | None) -> dict[str, Any]:
    from cli.remedies import as_data

    return {"plan": json.loads(dumps(document))} | {name: as_data(found) for name, found in (changes or {}).items()}


def _print_changes(document: PlanDocument, changes: Changes | None) -> None:
    from cli.remedies import as_text

    for name, found in (changes or {}).items():
        if found:
            print_text(f"\n{as_text(found, document.predicted.step_time_s, HEADINGS[name])}")


def _advised(document: PlanDocument, request: PlanRequest) -> tuple[PlanDocument, Changes | None, int]:
    """The plan with the best step of every launcher, changes, and the exit code; the plan alone where interrupted."""
    from planner.advice import advised
    from planner.remedies import of_plan, relief

    try:
        with live_line() as progress:
            told = advised(document, request, progress)
            changes = {"changes": of_plan(document, request, progress), "relief": relief(document, request)}
            return told, changes, DONE
    except Interrupted as stop:
        print(f"plan: {stop}; the best plans of other launchers and changes are left out", file=sys.stderr)
        return document, None, INTERRUPTED


def _searched_or_helped(requests: Sequence[PlanRequest], jobs: int) -> tuple[PlanDocument, int]:
    """As `_searched`; where nothing fits, the error tells what would help, of a cluster of one kind of GPUs."""
    try:
        return _searched(requests, jobs)
    except InfeasibleError as error:
        if len(requests) > 1:
            raise
        from planner.remedies import of_infeasible

        try:
            with live_line() as progress:
                remedies = of_infeasible(requests[0], progress)
        except Interrupted:
            raise error from None
        raise InfeasibleError(*error.messages, remedies=remedies, shortage=error.shortage) from None


def _searched(requests: Sequence[PlanRequest], jobs: int) -> tuple[PlanDocument, int]:
    """The best plan found, and the exit code that says how the search ended."""
    from planner.mixed import plan_groups

    try:
        with live_line() as progress:
            return plan_groups(requests, progress, jobs=jobs), DONE
    except LimitReached as limit:
        print(f"plan: {limit}; this is the best plan so far", file=sys.stderr)
        return limit.document, LIMIT
    except Interrupted as stop:
        if stop.document is None:
            raise
        print(f"plan: {stop}; this is the best plan so far", file=sys.stderr)
        return stop.document, INTERRUPTED

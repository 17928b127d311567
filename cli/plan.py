"""`plan` without a verb: searches and prints the plan."""

import os
import sys
import time
from collections.abc import Sequence
from typing import Any

from cli.explain import check_why_not, print_with_answer
from cli.failure import DONE, INTERRUPTED, LIMIT
from cli.progress import live_line
from cli.show import print_document
from cli.stats import statistics
from planner.document import PlanDocument, check_writable, write, write_text
from planner.errors import Interrupted, LimitReached, RequestError
from planner.request import PlanRequest

# Processes of a search beyond which one waits for another: about half of its work is done one thing after the other.
MOST_JOBS = 4


def plan(
    flags: dict[str, Any],
    *,
    as_json: bool,
    output: str | None,
    stats: str | None,
    why_not: str | None = None,
    advise: bool = False,
    jobs: int | None = None,
) -> int:
    """Plans what the flags ask for and prints it, with `advise` also what each launcher could; the exit code.

    Raises PlannerError or SpecError. A search that was stopped early prints its best so far and warns on stderr.
    """
    from planner.mixed import requests_of

    if not flags["model"]:
        message = "the model is missing: give --model NAME; `plan models` lists them"
        raise RequestError(message)
    for path in filter(None, (output, stats)):
        check_writable(path)
    requests = requests_of(flags)
    if why_not is not None:
        check_why_not(why_not)
    started_s = time.perf_counter()
    document, code = _searched(requests, jobs or min(_cores(), MOST_JOBS))
    request = next((each for each in requests if each.cluster == document.cluster), requests[0])
    request = request.replaced(workload=document.workload, recipe=document.recipe)  # those of the best variant
    wall_time_s = time.perf_counter() - started_s
    if advise and code == DONE:
        document, code = _advised(document, request)
    if output is not None:
        write(document, output)
    if stats is not None:
        write_text(statistics(document, wall_time_s), stats)
    if why_not is None:
        print_document(document, as_json=as_json)
    else:
        print_with_answer(document, why_not, request, as_json=as_json)
    return code


def _advised(document: PlanDocument, request: PlanRequest) -> tuple[PlanDocument, int]:
    """The plan with the best step of every launcher, and the exit code; as it was where this was interrupted."""
    from planner.advice import advised

    try:
        with live_line() as progress:
            return advised(document, request, progress), DONE
    except Interrupted as stop:
        print(f"plan: {stop}; the best plans of other launchers are left out", file=sys.stderr)
        return document, INTERRUPTED


def _cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


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

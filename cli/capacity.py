"""`plan --min-gpus`, `--max-seq-len`, `--max-global-batch`, `--largest-model FAMILY`: inverse questions."""

import json
from dataclasses import asdict, replace
from typing import Any

from cli.failure import DONE, INFEASIBLE, LIMIT
from cli.output import console, print_json, print_rendered, print_text
from cli.progress import live_line
from cli.report import write_capacity
from cli.show import print_document
from planner import capacity
from planner.capacity import Capacity
from planner.document import dumps, write
from planner.errors import RequestError
from planner.request import build_request

__all__ = ["ask"]

QUESTIONS = ("min_gpus", "max_seq_len", "max_global_batch", "largest_model")
# Counts that are tried where no flag gives the most GPUs there could be.
MOST_GPUS = 16_384


def ask(
    questions: dict[str, Any], flags: dict[str, Any], *, as_json: bool, output: str | None, report: str | None
) -> int:
    """Prints the answer and the plan of it; 1 where nothing tried fits, 4 where a limit stopped the plan, else 0.

    Raises PlannerError or SpecError.
    """
    given = [name for name in QUESTIONS if questions[name]]
    if len(given) > 1:
        names = " and ".join("--" + name.replace("_", "-") for name in given)
        message = f"{names} are questions of their own: ask one at a time"
        raise RequestError(message)
    found = _answer(questions, flags)
    if found.plan is not None and output is not None:
        write(found.plan, output)
    if report is not None:
        write_capacity(report, found)
    if as_json:
        document = json.loads(dumps(found.plan)) if found.plan else None
        print_json({"capacity": asdict(replace(found, plan=None)), "plan": document})
    else:
        from planner.report.capacity import capacity_report

        print_rendered(capacity_report(found), console())
        if found.plan is not None:
            print_text("\n")
            print_document(found.plan, as_json=False)
    if found.plan is None:
        return INFEASIBLE
    return DONE if found.plan.certificate.status == "OPTIMAL" else LIMIT


def _answer(questions: dict[str, Any], flags: dict[str, Any]) -> Capacity:
    family = questions["largest_model"]
    if family:
        flags = flags | {"model": flags["model"] or capacity.family_of(family)[0].name}
    if not flags["model"]:
        message = "the model is missing: give --model NAME; `plan models` lists them"
        raise RequestError(message)
    open_count = bool(questions["min_gpus"]) and flags["gpus"] is None and flags["nodes"] is None
    request = build_request(**(flags | {"gpus": 1} if open_count else flags))
    with live_line() as progress:
        if questions["min_gpus"]:
            most = MOST_GPUS if open_count else request.cluster.gpus
            return capacity.min_gpus(request, most, progress)
        if questions["max_seq_len"]:
            return capacity.max_seq_len(request, progress)
        if questions["max_global_batch"]:
            return capacity.max_global_batch(request, progress)
        return capacity.largest_model(request, family, progress)

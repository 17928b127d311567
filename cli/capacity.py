"""`plan --min-gpus`, `--max-seq-len`, `--max-global-batch`, `--largest-model FAMILY`: inverse questions."""

from dataclasses import asdict, replace
from typing import Any

from cli.output import console, print_rendered
from planner import capacity
from planner.capacity import Capacity
from planner.errors import RequestError
from planner.request import build_request

__all__ = ["answered", "as_data", "asked", "print_frontier"]

QUESTIONS = ("min_gpus", "max_seq_len", "max_global_batch", "largest_model")
# Counts that are tried where no flag gives the most GPUs there could be.
MOST_GPUS = 16_384


def asked(questions: dict[str, Any]) -> str | None:
    """The question that is asked, None where none is. Raises RequestError for more than one."""
    given = [name for name in QUESTIONS if questions.get(name) not in (None, False)]
    if len(given) > 1:
        message = f"{' and '.join(map(_flag, given))} are questions of their own: ask one at a time"
        raise RequestError(message)
    return given[0] if given else None


def answered(question: str, questions: dict[str, Any], flags: dict[str, Any]) -> Capacity:
    """The answer to a question about the job of some flags. Raises PlannerError or SpecError."""
    family = questions["largest_model"]
    if question == "largest_model":
        flags = flags | {"model": flags["model"] or capacity.family_of(family)[0].name}
    if not flags["model"]:
        message = "the model is missing: give --model NAME; `plan models` lists them"
        raise RequestError(message)
    open_count = question == "min_gpus" and flags["gpus"] is None and flags["nodes"] is None
    request = build_request(**(flags | {"gpus": 1} if open_count else flags))
    if "offload" in request.search:
        message = f"--search offload cannot be given with {_flag(question)}: it asks what fits without offload"
        raise RequestError(message)
    if question == "min_gpus":
        return capacity.min_gpus(request, MOST_GPUS if open_count else request.cluster.gpus)
    if question == "max_seq_len":
        return capacity.max_seq_len(request)
    if question == "max_global_batch":
        return capacity.max_global_batch(request)
    return capacity.largest_model(request, family)


def as_data(found: Capacity) -> dict[str, Any]:
    """The answer and its frontier as plain data."""
    data = asdict(replace(found, request=None))
    del data["request"]
    return data


def print_frontier(found: Capacity) -> None:
    """Prints the answer and every value that was tried."""
    from planner.report.capacity import capacity_report

    print_rendered(capacity_report(found), console())


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")

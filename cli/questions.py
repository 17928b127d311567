"""`plan --one-more-node`, `--best-upgrade`, `--cheapest`: questions about the cluster, each answered in one line."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel

from cli.failure import DONE, INFEASIBLE
from cli.output import console, print_json, print_rendered
from cli.report import write_question
from cli.what_if import study_bar
from planner.document import check_writable, write_text
from planner.document.files import rounded
from planner.economics import Economy
from planner.errors import RequestError
from planner.report import questions as texts
from planner.request import build_request
from planner.study.answers import default_folder
from planner.study.cheapest import Cheapest, cheapest_cluster
from planner.study.upgrades import Upgrades, best_upgrade, one_more_node

__all__ = ["ask"]


def ask(
    question: str,
    flags: Mapping[str, Any],
    economy: Economy,
    *,
    upgrade_by: float,
    jobs: int,
    as_json: bool,
    output: str | None,
    report: str | None = None,
) -> int:
    """Prints the answer to a question and writes it, as JSON, to `output`; 1 where the answer is that nothing does.

    Raises PlannerError or SpecError.
    """
    if not flags["model"]:
        message = "the model is missing: give --model NAME; `plan models` lists them"
        raise RequestError(message)
    if output is not None:
        check_writable(output)
    found = _answer(question, flags, economy, upgrade_by, jobs)
    data = {"question": question.replace("_", "-"), **_data(found, economy)}
    if output is not None:
        write_text(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False) + "\n", output)
    if report is not None:
        write_question(report, found, economy)
    if as_json:
        print_json(data)
    else:
        told = texts.cheapest_report(found) if isinstance(found, Cheapest) else texts.upgrades_report(found)
        print_rendered(told, console())
    answered = found.answer if isinstance(found, Cheapest) else found.best
    return INFEASIBLE if answered is None else DONE


def _answer(
    question: str, flags: Mapping[str, Any], economy: Economy, upgrade_by: float, jobs: int
) -> Cheapest | Upgrades:
    with study_bar() as progress:
        if question == "cheapest":
            return cheapest_cluster(flags, economy, jobs=jobs, folder=default_folder(), progress=progress)
        request = build_request(**flags)
        if question == "one_more_node":
            return one_more_node(request, economy=economy, jobs=jobs, progress=progress)
        return best_upgrade(request, upgrade_by, economy=economy, jobs=jobs, progress=progress)


def _data(found: Cheapest | Upgrades, economy: Economy) -> dict[str, Any]:
    line = texts.cheapest_line(found) if isinstance(found, Cheapest) else texts.upgrades_line(found)
    plain = rounded(_plain(asdict(found)))
    return {"line": line, **plain, "assumptions": list(economy.sentences())}


def _plain(value: Any) -> Any:
    """Plain data of what holds records."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return [_plain(each) for each in value] if isinstance(value, list | tuple) else value

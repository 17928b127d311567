"""`plan check`: what is wrong with a configuration, whether it fits, and what would help."""

import json
import os
from dataclasses import asdict
from typing import Any

from cli.output import console, print_json, print_rendered
from cli.remedies import as_data
from cli.show import document_in
from planner.check import Checked, checked
from planner.document import check_writable, dumps, write
from planner.errors import RequestError
from planner.fixed import request_of
from planner.given_profile import timed_by
from planner.proposal import Proposal, of_document, of_text
from planner.request import build_request, check_target


def check(configuration: str, flags: dict[str, Any], *, as_json: bool, output: str | None) -> int:
    """Prints the answer to a plan document or to `key=value` pairs of a job; 1 where there are faults, else 0.

    Raises PlannerError or SpecError.
    """
    if output is not None:
        check_writable(output)
    found = checked(_configuration(configuration, flags))
    if output is not None:
        if found.document is None:
            message = "--output has nothing to write: a configuration that is not legal has no document"
            raise RequestError(message)
        write(found.document, output)
    if as_json:
        print_json(_as_data(found))
    else:
        from planner.report.check import check_report

        print_rendered(check_report(found), console())
    return 0 if found.fine else 1


def _configuration(text: str, flags: dict[str, Any]) -> Proposal:
    """The configuration of a file, or of pairs and the flags that describe its job."""
    if "=" in text and not os.path.exists(text):
        if not flags["model"]:
            message = (
                "the model is missing: key=value pairs need --model and the hardware; a plan document needs neither"
            )
            raise RequestError(message)
        return of_text(text, build_request(**flags))
    if text != "-" and not os.path.exists(text):
        message = f"there is no plan document {text!r}, and pairs are field=value such as tp=8,pp=2"
        raise RequestError(message)
    given = [name for name, value in flags.items() if value and name not in ("target", "profile")]
    if given:
        names = ", ".join("--" + name.replace("overrides", "set").replace("_", "-") for name in given)
        message = f"{names} cannot be given with a plan document, which says all of its job"
        raise RequestError(message)
    check_target(flags["target"])
    document, profile = timed_by(document_in(text), flags["profile"])
    return of_document(document, request_of(document, profile).replaced(target=flags["target"]))


def _as_data(found: Checked) -> dict[str, Any]:
    return {
        "fine": found.fine,
        "configuration": found.proposal.text if found.figures and found.proposal.alike else None,
        "faults": [asdict(fault) for fault in found.faults],
        "shortages": list(found.shortages),
        "predicted": asdict(found.figures) if found.figures else None,
        "changes": as_data(found.remedies),
        "notes": list(found.notes),
        "plan": json.loads(dumps(found.document)) if found.document else None,
    }

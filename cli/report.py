"""`--report FILE.html`: what was found, as a page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from planner.document import PlanDocument, check_writable, write_text
from planner.errors import InfeasibleError
from planner.report.jinja import require_jinja
from planner.request import PlanRequest

if TYPE_CHECKING:
    from cost_models.specs.profile import HardwareProfile
    from planner.capacity import Capacity
    from planner.economics import Economy
    from planner.remedies import Remedy
    from planner.study import Study
    from planner.study.cheapest import Cheapest
    from planner.study.upgrades import Upgrades

__all__ = ["check_report", "write_capacity", "write_infeasible", "write_plan", "write_question", "write_study"]


def check_report(file: str | None) -> None:
    """Nothing when a page can be made and put there, so that a long search does not end in an error.

    Raises RequestError where jinja2 is not installed, DocumentError where the file cannot be written.
    """
    if file is not None:
        require_jinja("--report")
        check_writable(file)


def write_plan(
    file: str,
    document: PlanDocument,
    changes: "Mapping[str, Sequence[Remedy]] | None" = None,
    *,
    capacity: "Capacity | None" = None,
    economy: "Economy | None" = None,
    profile: "HardwareProfile | None" = None,
) -> None:
    """Puts the page of a plan in a file, with what else was asked, as `plan_page` has it. Raises DocumentError."""
    from planner.report.html.plan import plan_page

    write_text(plan_page(document, changes, capacity, economy, profile), file)


def write_infeasible(file: str, requests: Sequence[PlanRequest], error: InfeasibleError) -> None:
    """Puts the page of the answer that nothing fits in a file; of a mixed cluster with the job on its first kind."""
    from planner.report.html.infeasible import infeasible_page

    write_text(infeasible_page(requests[0], error), file)


def write_capacity(file: str, found: "Capacity") -> None:
    """Puts the page of an inverse question that has no answer in a file. Raises DocumentError."""
    from planner.report.html.frontier import capacity_page

    write_text(capacity_page(found), file)


def write_study(file: str, study: "Study") -> None:
    """Puts the page of a study in a file. Raises DocumentError."""
    from planner.report.html.study import study_page

    write_text(study_page(study), file)


def write_question(file: str, found: "Upgrades | Cheapest", economy: "Economy") -> None:
    """Puts the page of the answer to a question about clusters in a file. Raises DocumentError."""
    from planner.report.html.questions import question_page

    write_text(question_page(found, economy), file)

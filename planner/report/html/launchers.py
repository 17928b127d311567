"""Who can run a plan, on a page: each launcher's answer, and of those that can the files and the command to copy."""

from dataclasses import dataclass

from planner.document import LauncherAnswer, PlanDocument
from planner.errors import InexpressibleError, RequestError
from planner.export import JOB_FILE, LAUNCH_FILE, exported
from planner.export.runtime import FILE as PLAN_FILE
from planner.launchers import inexpressible_fields
from planner.report.html.fields import Fields, Number
from planner.report.quantities import duration

__all__ = ["Export", "LauncherRow", "exports", "launcher_rows", "refused_by_all"]


@dataclass(frozen=True)
class LauncherRow:
    """A launcher: whether it can run the plan, every reason where it cannot, and its own best where that is known."""

    name: str
    able: bool
    reasons: tuple[str, ...]
    best: Number | None
    slower: str


@dataclass(frozen=True)
class Export:
    """The plan in a launcher's form: the script to start on every node, the other files, and what is left to do."""

    launcher: str
    versions: str
    script: str
    files: tuple[tuple[str, str], ...]
    notes: tuple[str, ...]


def launcher_rows(document: PlanDocument, fields: Fields) -> list[LauncherRow]:
    """Those that can first."""
    rows = [_row(document, fields, name, answer) for name, answer in document.launchers.items()]
    return sorted(rows, key=lambda row: not row.able)


def _row(document: PlanDocument, fields: Fields, name: str, answer: LauncherAnswer) -> LauncherRow:
    best, slower = None, ""
    if answer.best_step_time_s is not None and not answer.expressible:
        best = fields(f"launchers.{name}.best_step_time_s", duration)
        slower = f"{100 * (answer.best_step_time_s / document.predicted.step_time_s - 1.0):+.1f} %"
    return LauncherRow(name, answer.expressible, answer.why_not, best, slower)


def refused_by_all(document: PlanDocument) -> tuple[str, ...]:
    """Fields of the plan that no launcher of others can express as they are."""
    return inexpressible_fields(document) if document.launchers else ()


def exports(document: PlanDocument) -> tuple[list[Export], list[str]]:
    """The plan for every launcher that can run it; and of those that only the document says can, why they cannot."""
    found, refused = [], []
    for name, answer in document.launchers.items():
        if not answer.expressible:
            continue
        try:
            bundle = exported(document, name)
        except (InexpressibleError, RequestError) as error:
            refused.append(f"{name}: by the rules of this version {error}")
            continue
        # The plan itself is in the page once, and what no launcher is told is in the plan.
        apart = (LAUNCH_FILE, JOB_FILE, PLAN_FILE)
        files = tuple((path, text) for path, text in bundle.files.items() if path not in apart)
        found.append(Export(name, bundle.versions, bundle.files[LAUNCH_FILE], files, bundle.notes))
    return found, refused

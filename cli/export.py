"""`plan export PLAN --to NAME`: a plan in a launcher's own form; `plan port`: from one launcher's form to another's."""

import sys
from pathlib import Path
from typing import Any

from cli.output import print_json, print_text
from cli.show import document_in
from cost_models.specs.units import format_bytes
from planner.document import PlanDocument, write_text
from planner.errors import InexpressibleError
from planner.export import LAUNCH_FILE, Bundle, exported, files_in, imported, written
from planner.export.nearest import Nearest, nearest
from planner.given_profile import timed_by


def export(file: str, *, to: str, output: str | None, take_nearest: bool, profile: str | None, as_json: bool) -> int:
    """Writes or prints a plan for a launcher; the exit code.

    Raises InexpressibleError where the launcher cannot run it (with `take_nearest`, InfeasibleError where it has no
    plan that fits), and RequestError, DocumentError or SpecError.
    """
    document = document_in(file)
    found = None
    try:
        bundle = exported(document, to)
    except InexpressibleError as error:
        if not take_nearest:
            raise
        found = nearest(*timed_by(document, profile), to)
        bundle = exported(found.document, to)
        if not as_json:
            _tell_nearest(error, document, found)
    return _put(bundle, output, as_json, {} if found is None else {"nearest": _nearest_record(document, found)})


def port(folder: str, *, to: str, output: str | None, as_json: bool) -> int:
    """Writes or prints an export to one launcher in the form of another; the exit code.

    Raises InexpressibleError where the other cannot run the plan, LauncherFileError, RequestError or DocumentError.
    """
    return _put(exported(imported(files_in(folder)), to), output, as_json, {})


def _put(bundle: Bundle, output: str | None, as_json: bool, more: dict[str, Any]) -> int:
    paths = _written(bundle, output) if output is not None else []
    if as_json:
        record = {
            "launcher": bundle.launcher,
            "versions": bundle.versions,
            "env": dict(bundle.env),
            "command": bundle.command,
            "notes": list(bundle.notes),
            "files": dict(bundle.files),
            "written": [str(path) for path in paths],
        }
        print_json(record | more)
    elif paths:
        print_text("".join(f"{path}\n" for path in paths))
        _tell_how(bundle, paths)
    else:
        print_text("\n".join(f"# {name}\n{text}" for name, text in bundle.files.items()))
        _tell_how(bundle, paths)
    return 0


def _written(bundle: Bundle, output: str) -> list[Path]:
    """The paths of what was written: all files into a folder, or the main one into a file, as a suffix tells."""
    path = Path(output)
    if path.is_dir() or not path.suffix:
        return written(bundle, path)
    write_text(bundle.main, path)
    return [path]


def _tell_how(bundle: Bundle, paths: list[Path]) -> None:
    """How to launch it, on stderr."""
    lines = [f"For {bundle.versions}."]
    if any(path.name == LAUNCH_FILE for path in paths):
        lines.append(f"Start it on every node with {next(path for path in paths if path.name == LAUNCH_FILE)}.")
    print("\n".join((*lines, *bundle.notes)), file=sys.stderr)


def _tell_nearest(error: InexpressibleError, document: PlanDocument, found: Nearest) -> None:
    """What the launcher cannot express, what is exported instead, and what that costs, on stderr."""
    was, now = document.predicted, found.document.predicted
    peaks = [format_bytes(each.peak_memory_bytes.device) for each in (was, now)]
    lines = [
        str(error),
        f"The closest plan of {error.launcher}: {'; '.join(change.text for change in found.changes)}.",
        f"Its step takes {now.step_time_s:.4g} s instead of {was.step_time_s:.4g} s ({found.slower_by:+.1%}), "
        f"its fullest GPU {peaks[1]} instead of {peaks[0]}.",
    ]
    print("\n".join(lines), file=sys.stderr)


def _nearest_record(document: PlanDocument, found: Nearest) -> dict[str, Any]:
    was, now = document.predicted, found.document.predicted
    return {
        "changes": [{"field": each.field, "was": each.was, "now": each.now} for each in found.changes],
        "step_time_s": now.step_time_s,
        "plan_step_time_s": was.step_time_s,
        "slower_by": found.slower_by,
        "device_bytes": now.peak_memory_bytes.device,
        "plan_device_bytes": was.peak_memory_bytes.device,
    }

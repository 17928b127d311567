"""`plan what-if`: many scenarios at once, as a table, CSV, Parquet, JSON and plan documents."""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from cli.failure import BAD_INPUT, DONE, INFEASIBLE, INTERRUPTED, LIMIT
from cli.progress import live_console
from cli.report import check_report, write_study
from cli.show import print_study
from planner.document import check_writable, write_text
from planner.economics import Economy
from planner.errors import DocumentError, RequestError
from planner.study.answers import default_folder
from planner.study.files import dumps_study, needs_parquet, write_csv, write_parquet
from planner.study.run import BACKENDS, MOST_UNASKED, StudyProgress, WhatIf
from planner.study.run import what_if as conducted
from planner.study.sweep import axes_of

__all__ = ["cores", "study_bar", "what_if"]


def what_if(
    sweep: Sequence[str],
    flags: Mapping[str, Any],
    *,
    money: Mapping[str, Any],
    files: Mapping[str, str | None],
    as_json: bool,
    jobs: int | None = None,
    backend: str = "loky",
    yes: bool = False,
    keep: str | None = None,
) -> int:
    """Plans all scenarios, prints them and writes the files; 1 where none has a plan, 2 where none can be asked, 130
    where it was interrupted.

    Raises PlannerError or SpecError; what was finished before is kept, and told.
    """
    if backend not in BACKENDS:
        message = f"--backend must be one of {', '.join(BACKENDS)}, got {backend!r}"
        raise RequestError(message)
    axes, economy = axes_of(sweep), Economy.of(**money)
    _check_files(files)
    folder = _folder(keep)
    with study_bar() as progress:
        found = conducted(
            flags,
            axes,
            economy=economy,
            jobs=jobs or (cores() if backend == "loky" else None),
            backend=backend,
            folder=folder,
            progress=progress,
            unasked=None if yes else MOST_UNASKED,
        )
    try:
        _write(found, files)
    except DocumentError as error:
        kept = f"; all finished scenarios are kept in {folder}: the same command goes on from there" if folder else ""
        message = f"{error}{kept}"
        raise DocumentError(message) from error
    print_study(found.study, as_json=as_json)
    return _code(found, folder)


def _code(found: WhatIf, folder: Path | None) -> int:
    """The exit code; an interrupt is told."""
    if found.interrupted:
        left = sum(each.status == "open" for each in found.study.scenarios)
        again = "; the same command goes on from there" if folder else ""
        print(f"plan: interrupted, {left:,} scenarios are open{again}", file=sys.stderr)
        return INTERRUPTED
    if any(each.status == "limit" for each in found.study.scenarios):
        return LIMIT
    if any(found.study.planned):
        return DONE
    return BAD_INPUT if all(each.status == "invalid" for each in found.study.scenarios) else INFEASIBLE


def _check_files(files: Mapping[str, str | None]) -> None:
    """Nothing where all files can be written, so that a long study does not end in an error."""
    check_report(files["report"])
    for name in ("output", "csv", "parquet"):
        path = files[name]
        if path is not None:
            check_writable(path)
    if files["parquet"] is not None:
        needs_parquet()
    folder = files["documents"]
    if folder is not None:
        try:
            Path(folder).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            message = f"cannot write {folder}: {(error.strerror or str(error)).lower()}"
            raise DocumentError(message) from error
        check_writable(Path(folder) / "0.json")


def _write(found: WhatIf, files: Mapping[str, str | None]) -> None:
    if files["output"] is not None:
        write_text(dumps_study(found.study), files["output"])
    if files["csv"] is not None:
        write_csv(found.study, files["csv"])
    if files["parquet"] is not None:
        write_parquet(found.study, files["parquet"])
    if files["report"] is not None:
        write_study(files["report"], found.study)
    if files["documents"] is not None:
        for each in found.study.planned:
            write_text(found.text(each.number), Path(files["documents"]) / f"{each.number}.json")


def _folder(keep: str | None) -> Path | None:
    """Where finished scenarios are kept; None for nowhere."""
    if keep == "off":
        return None
    return default_folder() if keep is None else Path(keep)


def cores() -> int:
    """Cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def study_bar() -> Iterator[Callable[[StudyProgress], None] | None]:
    """A function that shows how far the study is, on stderr; None where that is no terminal or CI is set."""
    to = live_console()
    if to is None:
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, TimeRemainingColumn(), console=to, transient=True) as bar:
        task = bar.add_task("scenarios", total=None)

        def show(done: StudyProgress) -> None:
            kept = f", {done.kept:,} kept from before" if done.kept else ""
            bar.update(task, completed=done.finished, total=done.total, description=f"scenarios{kept}")

        yield show

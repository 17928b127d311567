"""Errors on runs as if nobody had known them: sources whose framework is unknown, GPUs that nobody measured.

`python -m tests.benchmarks.accuracy FOLDER --strangers` prints both. What a table holds of a source, its framework,
notes, network and attention, is emptied; a GPU's profile is replaced by that of another one, scaled to its peaks.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from cost_models.specs import catalog
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.scaled_profile import scaled_fields
from planner.evaluate.answers import answers
from planner.evaluate.predictions import costs_of
from planner.evaluate.runs import Run
from planner.evaluate.statistics import Comparison, compare

__all__ = ["print_strangers"]

Row = dict[str, str]
# What is emptied of a source, one step after the other.
UNKNOWN = (("framework",), ("framework", "notes"), ("framework", "notes", "interconnect", "attention_impl"))
# A GPU, and the one whose profile takes its place.
STAND_INS = {
    "a100-40-sxm": "a100-80-sxm",
    "h200": "h100-sxm",
    "h100-sxm": "a100-80-sxm",
    "b200": "h100-sxm",
    "gb200": "b200",
    "gb300": "b200",
}


def print_strangers(core: Sequence[Comparison], rows: Sequence[Row]) -> None:
    """None; errors by source with its habits unknown, and by GPU with its measurements unknown, are printed."""
    found = {one.row["id"]: one.time_error or 0.0 for one in core}
    known = [row for row in rows if row["id"] in found]
    columns = [{name: found[name] for name in found}]
    for emptied in UNKNOWN:
        blank = [row | dict.fromkeys(emptied, "") for row in known]
        columns.append({one.row["id"]: one.time_error for one in compare(blank, answers(blank)) if one.time_error})
    print("\nmean / bias, %, of a source           rows      known   framework      + notes    + network")
    _print_groups(columns, lambda name: name.rsplit("-", 1)[0])
    profiles = {gpu: _stand_in(gpu) for gpu in STAND_INS}
    steps, gpus = {}, {}
    scaled = [(one, run) for one in core if (run := one.answer.run) and _runs_on(profiles, run)]
    costs = costs_of([replace(run, profile=profiles[run.cluster.gpu.name]) for _, run in scaled])
    for (one, run), cost in zip(scaled, costs, strict=True):
        gpus[one.row["id"]] = run.cluster.gpu.name
        steps[one.row["id"]] = cost.step_time_s / (one.measured.step_time_s or 1.0) - 1.0
    print("\nmean / bias, %, of a GPU              rows   measured      scaled")
    _print_groups(
        [{name: found[name] for name in steps}, steps], lambda name: f"{gpus[name]} by {STAND_INS[gpus[name]]}"
    )


def _runs_on(profiles: Mapping[str, HardwareProfile], run: Run) -> bool:
    """Whether there is a stand-in for the run's GPU that has products of its precision."""
    profile = profiles.get(run.cluster.gpu.name)
    return profile is not None and run.workload.precision in profile.gemm


def _stand_in(gpu: str) -> HardwareProfile:
    """The profile of a GPU as it would be had nobody measured it."""
    other = STAND_INS[gpu]
    reference, target = catalog.load_profile(other), catalog.load_gpu(gpu)
    fields = scaled_fields(reference, catalog.load_gpu(other), target, {})
    return HardwareProfile.model_validate(fields | {"name": f"{gpu} by {other}", "gpu": gpu})


def _print_groups(columns: Sequence[dict[str, float]], group: Callable[[str], str]) -> None:
    names = sorted({group(name) for name in columns[0]})
    for label in (*names, "all"):
        mine = [name for name in columns[0] if label in (group(name), "all")]
        cells = []
        for errors in columns:
            values = 100 * np.array([errors[name] for name in mine if name in errors])
            cells.append(f"{np.abs(values).mean():7.1f}{np.median(values):+6.1f}")
        print(f"{label:34}{len(mine):8}" + "".join(cells))

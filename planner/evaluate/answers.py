"""Predictions of a table of runs, as the table that is written."""

import csv
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from cost_models.schedules.errors import ScheduleError
from cost_models.specs.errors import SpecError
from cost_models.specs.measured_profile import MeasuredProfile
from planner.bands import MEMORY_BANDS, time_band
from planner.document import verdict_of
from planner.errors import RequestError
from planner.evaluate.errors import RunError, UnsupportedRunError
from planner.evaluate.predictions import RunCosts, costs_of
from planner.evaluate.recompute import FULL, Recompute, read_recompute
from planner.evaluate.runs import Run, read_run
from planner.evaluate.trials import TRIED, values_to_try
from planner.fitting import MARGIN
from planner.fixed import zero_mode

__all__ = ["COLUMNS", "Answer", "answers", "read_rows", "write_answers"]

GIB = 2.0**30
# ZeRO stages, tried in turn where a run says nothing of sharding and would not fit with what is usual.
STAGES_THAT_SHARD_MORE = (2, 3)
# Of the layers, tried in turn where a run says nothing of recompute and would not fit without.
RECOMPUTED_SHARES = (0.25, 0.5, 0.75, 1.0)
# A value that is tried may need this much of the memory by prediction.
DOUBT = 1.1
# Columns whose assumption makes an answer unsure.
DECISIVE = ("recipe", "tp", "pp", "ep", "micro_batch", "hidden", "n_layers", "seq_len")
COLUMNS = (
    "id",
    "status",
    "predicted_step_time_s",
    "predicted_step_time_low_s",
    "predicted_step_time_high_s",
    "predicted_tokens_per_s_per_gpu",
    "predicted_peak_allocated_gib",
    "predicted_peak_allocated_low_gib",
    "predicted_peak_allocated_high_gib",
    "predicted_peak_reserved_gib",
    "fits",
    "message",
)


@dataclass(frozen=True)
class Answer:
    """What is said of one row; without a prediction `run` and `costs` are None and `message` says why."""

    id: str
    status: Literal["ok", "unsupported", "invalid"]
    message: str
    run: Run | None = None
    costs: RunCosts | None = None

    @property
    def fits(self) -> str:
        """yes, borderline or no: the fullest GPU's bytes, as the device counts them, against its usable memory.

        A run that is short of memory still has what lies fragmented: the allocator frees it before it gives up. Where
        segments do not grow, a run can fail beside free blocks that are too small: its bytes are as sure as the band.
        """
        if self.run is None or self.costs is None:
            return ""
        device = self.costs.device_bytes
        fragments = self.costs.reserved_bytes - self.costs.allocated_bytes
        above = MARGIN if self.run.recipe.growing_segments else MEMORY_BANDS[1]
        low, high = (device - fragments) * (1 - MARGIN), device * (1 + above)
        return verdict_of(low, high, self.run.cluster.gpu.usable_memory_bytes)

    @property
    def unsure(self) -> bool:
        """Whether something that decides the speed had to be assumed."""
        assumed = self.run.assumed if self.run else ()
        return any(text.split("=")[0] in DECISIVE and "inferred" not in text for text in assumed)

    def cells(self) -> dict[str, str]:
        """The answer by COLUMNS, empty where there is none."""
        cells = dict.fromkeys(COLUMNS, "") | {"id": self.id, "status": self.status, "message": self.message}
        if self.run is None or self.costs is None:
            return cells
        step, allocated = self.costs.step_time_s, self.costs.allocated_bytes / GIB
        time = 1 + time_band(self.run.model, unsure=self.unsure)
        memory = MEMORY_BANDS[self.unsure or not self.run.recipe.placeholder_gradient_bytes]
        values = {
            "predicted_step_time_s": step,
            "predicted_step_time_low_s": step / time,
            "predicted_step_time_high_s": step * time,
            "predicted_tokens_per_s_per_gpu": self.run.workload.tokens / step / self.run.cluster.gpus,
            "predicted_peak_allocated_gib": allocated,
            "predicted_peak_allocated_low_gib": allocated * (1 - memory),
            "predicted_peak_allocated_high_gib": allocated * (1 + memory),
            "predicted_peak_reserved_gib": self.costs.reserved_bytes / GIB,
        }
        return cells | {name: f"{value:.9g}" for name, value in values.items()} | {"fits": self.fits}


def answers(rows: Sequence[Mapping[str, Any]], measured: MeasuredProfile | None = None) -> list[Answer]:
    """An answer for each row, in their order; rows of the device of a `measured` profile are timed by it."""
    filled = [dict(row) for row in rows]
    found = _answered([(_id(row, index), row) for index, row in enumerate(filled)], measured)
    for column in TRIED:
        _try_values(filled, found, column, measured)
    return _with_sharding(_with_recompute(found))


def _answered(rows: Sequence[tuple[str, Mapping[str, Any]]], measured: MeasuredProfile | None) -> list[Answer]:
    """An answer for each row as it stands, by its name."""
    read = [_read(name, row, measured) for name, row in rows]
    runs = {index: one for index, one in enumerate(read) if isinstance(one, Run)}
    costs = dict(zip(runs, costs_of(list(runs.values())), strict=True))
    return [
        one if isinstance(one, Answer) else _answer(name, one, costs[index])
        for index, ((name, _), one) in enumerate(zip(rows, read, strict=True))
    ]


def _try_values(rows: list[dict[str, Any]], found: list[Answer], column: str, measured: MeasuredProfile | None) -> None:
    """None; rows that leave a column open get, with their answers, the fastest value that fits."""
    trials = [
        (index, value)
        for index, answer in enumerate(found)
        if answer.run is not None
        for value in values_to_try(rows[index], answer.run, column, misfit=_misfits(answer))
    ]
    tried = _answered([(found[index].id, rows[index] | {column: str(value)}) for index, value in trials], measured)
    best: dict[int, tuple[int, Answer]] = {}
    for (index, value), answer in zip(trials, tried, strict=True):
        if answer.costs is not None and (index not in best or _preference(answer) < _preference(best[index][1])):
            best[index] = value, answer
    for index, (value, answer) in best.items():
        assert answer.run is not None
        assert answer.costs is not None
        rows[index][column] = str(value)
        told = f"{column}={value} (assumed: the fastest that fits)"
        kept = tuple(text for text in found[index].run.assumed if not text.startswith(f"{column}="))  # type: ignore[union-attr]
        run = replace(answer.run, assumed=(*kept, told))
        found[index] = _answer(answer.id, run, answer.costs)


def _preference(answer: Answer) -> tuple[bool, float]:
    """What may fit first, then what takes less for a token; of what cannot, what needs less."""
    assert answer.run is not None
    assert answer.costs is not None
    misfit = _misfits(answer)
    return misfit, answer.costs.device_bytes if misfit else answer.costs.step_time_s / answer.run.workload.tokens


def _misfits(answer: Answer) -> bool:
    """Whether the run needs more memory than there is by prediction. It did work: doubt is in its favour."""
    assert answer.run is not None
    assert answer.costs is not None
    return answer.costs.device_bytes > DOUBT * answer.run.cluster.gpu.usable_memory_bytes


def _answer(name: str, run: Run, costs: RunCosts) -> Answer:
    assumed_set = f"full on {run.recompute.share:.0%} of the layers" if run.recompute.shares else "none"
    recompute = () if run.recompute_given else (f"recompute={assumed_set} (assumed)",)
    assumed = (*run.assumed, *recompute)
    return Answer(name, "ok", f"assumed: {', '.join(assumed)}" if assumed else "", run, costs)


def _with_recompute(found: list[Answer]) -> list[Answer]:
    """The answers; runs that say nothing of recompute and do not fit without recompute as many layers as they need."""
    for share in RECOMPUTED_SHARES:
        runs = {
            index: replace(answer.run, recompute=replace(read_recompute(FULL), share=share))
            for index, answer in enumerate(found)
            if answer.run is not None and not answer.run.recompute_given and answer.fits == "no"
        }
        for (index, run), costs in zip(runs.items(), costs_of(list(runs.values())), strict=True):
            found[index] = _answer(found[index].id, run, costs)
    return found


def _with_sharding(found: list[Answer]) -> list[Answer]:
    """The answers; runs that do not fit and say nothing of sharding shard gradients, or else weights too."""
    for stage in STAGES_THAT_SHARD_MORE:
        short = [
            index
            for index, answer in enumerate(found)
            if answer.run is not None and answer.fits == "no" and _says_no_sharding(answer.run)
        ]
        runs = [_sharded(found[index].run, stage) for index in short]
        tried = [
            _answer(found[index].id, run, costs) for index, run, costs in zip(short, runs, costs_of(runs), strict=True)
        ]
        for index, answer in zip(short, _with_recompute(tried), strict=True):
            found[index] = answer
    return found


def _says_no_sharding(run: Run) -> bool:
    """Whether sharding is open and the degrees are not: where they are too, it is they that do not fit."""
    open_columns = {text.split("=")[0] for text in run.assumed}
    return "zero_or_fsdp" in open_columns and not open_columns & {"tp", "pp"}


def _sharded(run: Run | None, stage: int) -> Run:
    """The run at a ZeRO stage; what it recomputes is open again where the row does not say."""
    assert run is not None
    told = f"zero_or_fsdp={stage} (assumed: the least that fits)"
    kept = tuple(text for text in run.assumed if not text.startswith("zero_or_fsdp="))
    recompute = run.recompute if run.recompute_given else Recompute()
    return replace(run, zero=zero_mode(stage, stage == 3), recompute=recompute, assumed=(*kept, told))


def _read(name: str, row: Mapping[str, Any], measured: MeasuredProfile | None) -> Run | Answer:
    try:
        return read_run(row, measured)
    except UnsupportedRunError as error:
        return Answer(name, "unsupported", _line(error))
    except (RunError, SpecError, ScheduleError) as error:
        return Answer(name, "invalid", _line(error))


def _id(row: Mapping[str, Any], index: int) -> str:
    return str(row.get("id") or index + 1)


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def read_rows(path: str | Path) -> list[dict[str, str]]:
    """The rows of a table with a heading. Raises RequestError."""
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(file, restkey="extra", restval=""))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        message = f"cannot read {path}: {reason}"
        raise RequestError(message) from error
    if not rows:
        message = f"{path} must be a CSV file with a heading and a row for each run, got no rows"
        raise RequestError(message)
    return rows


def write_answers(found: Iterable[Answer], path: str | Path) -> None:
    """None; the answers are written as a CSV file of COLUMNS. Raises RequestError."""
    try:
        with open(path, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS)
            writer.writeheader()
            writer.writerows(answer.cells() for answer in found)
    except OSError as error:
        message = f"cannot write {path}: {error.strerror}"
        raise RequestError(message) from error

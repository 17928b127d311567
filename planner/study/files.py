"""A study as files: JSON, and one row a scenario as a pandas frame, CSV and Parquet."""

import json
import os
from typing import TYPE_CHECKING, Any

from cost_models.specs.errors import SpecError
from cost_models.specs.files import first_faults
from planner.document.files import rounded, write_bytes, write_text
from planner.errors import DocumentError, RequestError
from planner.study.result import ScenarioResult, Study

if TYPE_CHECKING:
    import pandas

__all__ = [
    "MAX_STUDY_BYTES",
    "dumps_study",
    "frame",
    "loads_study",
    "needs_parquet",
    "study_in",
    "write_csv",
    "write_parquet",
]

MAX_STUDY_BYTES = 256 * 2**20  # some fifty thousand scenarios
# What a row shows of a plan beside its layout, by name; the units are in the names.
PLAN = (
    *("model", "gpu", "gpus", "nodes", "seq_len", "global_batch", "tokens", "precision", "optimizer", "recipe"),
    *("step_time_s", "step_time_low_s", "step_time_high_s", "tokens_per_s", "tokens_per_s_per_gpu", "mfu"),
    *("device_bytes", "capacity_bytes", "host_memory_bytes", "verdict"),
    *("layout", "batch", "zero_stage", "recompute", "offload", "certificate", "gap", "checkpoint_bytes"),
)
DEGREES = ("tp", "pp", "vpp", "cp", "ep", "etp", "dp", "micro_batch_size", "num_microbatches", "schedule", "gpus_idle")


def dumps_study(study: Study) -> str:
    """The study as JSON text: floats with 9 significant digits, one last newline; equal studies give equal bytes."""
    return json.dumps(rounded(study.model_dump(mode="json")), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def loads_study(text: str | bytes) -> Study:
    """The study in a JSON text. Raises SpecError."""
    return Study.model_validate_json(text)


def study_in(text: str | bytes, source: str) -> Study | None:
    """The study in a JSON text, None where it is something else. Raises DocumentError for one that is not valid."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(data, dict) or not {"swept", "scenarios"} <= data.keys():
        return None
    try:
        return Study.model_validate(data)
    except SpecError as error:
        message = f"{source} is not a valid study: {first_faults(str(error))}"
        raise DocumentError(message) from error


def frame(study: Study) -> "pandas.DataFrame":
    """One row a scenario: swept inputs (`sweep:KEY`), status, plan, economics. What a scenario lacks is missing."""
    import pandas

    return pandas.DataFrame([_row(each) for each in study.scenarios])


def _row(scenario: ScenarioResult) -> dict[str, Any]:
    plan, found = scenario.plan, scenario.economics
    row: dict[str, Any] = {"scenario": scenario.number}
    row |= {f"sweep:{key}": value for key, value in scenario.inputs.items()}
    row |= {"status": scenario.status, "pareto": scenario.pareto}
    row |= {name: getattr(plan, name, None) for name in PLAN}
    row |= {name: getattr(plan.parallelism, name) if plan else None for name in DEGREES}
    from planner.economics import Economics

    row |= {name: getattr(found, name, None) for name in Economics.model_fields if name not in row}
    return row | {"reasons": "; ".join(scenario.reasons)}


def write_csv(study: Study, path: str | os.PathLike[str]) -> None:
    """Puts the frame in a CSV file, whole or not at all. Raises DocumentError."""
    write_text(frame(study).to_csv(index=False), path)


def needs_parquet() -> None:
    """Nothing where pandas can write Parquet. Raises RequestError."""
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        message = "--parquet needs the package pyarrow, which is not installed: pip install pyarrow"
        raise RequestError(message) from None


def write_parquet(study: Study, path: str | os.PathLike[str]) -> None:
    """Puts the frame in a Parquet file, whole or not at all. Raises DocumentError, and RequestError without pyarrow."""
    needs_parquet()
    content = frame(study).to_parquet(index=False)
    assert content is not None  # without a path pandas gives the bytes
    write_bytes(content, path)

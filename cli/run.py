"""`plan run PLAN`: the plan trained, by forked ranks or by those that torchrun started."""

import json
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cli.extras import require_torch
from cli.output import print_json, print_text
from cli.show import document_in
from planner.document import check_writable, write_text
from planner.errors import RequestError

if TYPE_CHECKING:
    from planner.document.job import Job

GIB = 2.0**30


def run(
    file: str,
    *,
    data: str,
    steps: int,
    local_ranks: int | None,
    weights: str | None,
    learning_rate: float,
    seed: int,
    log: str | None,
    report: str | None,
    timeout_s: float,
    as_json: bool,
) -> int:
    """Trains a plan for some steps and prints each; the exit code. Raises PlannerError or RuntimeFault."""
    document = document_in(file)
    require_torch("run", *(["safetensors"] if weights else []))
    for path in filter(None, (log, report)):
        check_writable(path)
    from planner.document.job import job_of
    from runtime.optimizer import Settings
    from runtime.report import report_text
    from runtime.run import Options, train
    from runtime.support import check

    job = job_of(document)
    check(job)
    options = Options(
        steps=steps,
        data=data,
        seed=seed,
        weights=Path(weights) if weights else None,
        settings=Settings(learning_rate=learning_rate),
    )
    records: list[dict[str, Any]] = []
    tell = partial(_tell, records, log, aloud=not as_json)
    _start(job, local_ranks, partial(train, job, options), tell, timeout_s)
    if report and records:
        write_text(report_text(document, records), report)
    if as_json and records:
        print_json({"model": document.model.name, "ranks": job.layout.gpus_used, "steps": records})
    return 0


def _start(
    job: "Job",
    local_ranks: int | None,
    work: Callable[..., None],
    tell: Callable[[dict[str, Any]], None],
    timeout_s: float,
) -> None:
    """Runs the work on its ranks. Raises RequestError when nothing says which they are."""
    from runtime.environment import place, says_a_rank
    from runtime.run import check_ranks
    from runtime.world import fork, from_environment

    if local_ranks is not None:
        check_ranks(job, local_ranks)
        fork(local_ranks, work, tell, timeout_s)
    elif says_a_rank():
        check_ranks(job, place().size)
        from_environment(work, tell, timeout_s)
    else:
        message = "plan run must be started by torchrun, or with --local-ranks N to start N ranks here"
        raise RequestError(message)


def _tell(records: list[dict[str, Any]], log: str | None, record: dict[str, Any], *, aloud: bool) -> None:
    """Keeps a record, writes it as a line of JSON and prints it. Only the first rank of torchrun has records."""
    records.append(record)
    if log:
        try:
            with open(log, "a" if len(records) > 1 else "w", encoding="utf-8") as lines:
                lines.write(json.dumps(record) + "\n")
        except OSError as error:
            message = f"cannot write {log}: {(error.strerror or str(error)).lower()}"
            raise RequestError(message) from error
    if aloud:
        print_text(
            f"step {record['step']:>5}  loss {record['loss']:.5f}  norm {record['gradient_norm']:.3f}  "
            f"{record['step_time_s'] * 1e3:.1f} ms  {record['tokens_per_s']:,.0f} tokens/s  "
            f"{record['peak_memory_bytes'] / GIB:.2f} GiB\n"
        )
        sys.stdout.flush()

"""`plan dry-run PLAN`: ranks of a plan built and run here without its hardware, and compared with the prediction."""

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from cli.extras import require_torch
from cli.output import console, print_json, print_rendered
from cli.show import document_in
from planner.document import PlanDocument
from planner.errors import RequestError

if TYPE_CHECKING:
    from cli.dry_comparison import Comparison

AGREES, DIFFERS = 0, 1


def dry_run(file: str, *, rank: int | None, all_kinds: bool, profile: str | None, as_json: bool) -> int:
    """Prints how the ranks compare; the exit code, 1 where something differs without a known reason.

    Raises PlannerError, SpecError or RuntimeFault.
    """
    if rank is not None and all_kinds:
        message = "--rank and --all-kinds cannot be given together: one names a rank, the other one of each kind"
        raise RequestError(message)
    from planner.given_profile import timed_by

    document, timing = timed_by(document_in(file), profile)
    require_torch("dry-run")
    from cli.dry_comparison import compared
    from cli.dry_prediction import Prediction
    from planner.document.job import job_of
    from planner.explain.setting import Plan
    from planner.fixed import planned
    from runtime.dry_run import dry_run as run
    from runtime.support import check

    job = job_of(document)
    check(job)
    plan = Plan(planned(document, timing))
    settings, stride = plan.stages(), plan.candidate.pipeline.layout["pp_stride"]
    found = []
    for number, kind in _wanted(document, rank, all_kinds, stride):
        stage = number // stride % job.layout.pp
        found.append(compared(Prediction(settings[stage]), job, run(job, number), kind))
    if as_json:
        print_json(_as_data(document, found))
    else:
        from cli.dry_report import report

        print_rendered(report(document, found), console())
    return AGREES if all(one.agrees for one in found) else DIFFERS


def _wanted(document: PlanDocument, rank: int | None, all_kinds: bool, stride: int) -> Iterator[tuple[int, str]]:
    """Global ranks and the kinds of their stages."""
    kinds = _kinds(document)
    if all_kinds:
        yield from ((stage * stride, kind) for stage, kind in kinds.items())
        return
    number, ranks = rank or 0, document.parallelism.gpus_used
    if number >= ranks:
        message = f"--rank must be a rank of the plan, 0 to {ranks - 1}, got {number}"
        raise RequestError(message)
    yield number, kinds.get(number // stride % document.parallelism.pp, "middle")


def _kinds(document: PlanDocument) -> dict[int, str]:
    """The first stage, the last, and one of each that differs between them by its layers, sharding or recompute."""
    last = len(document.stages) - 1
    kinds: dict[int, str] = {}
    seen: list[Any] = []
    for index, stage in enumerate(document.stages):
        layers = [chunk.layers for chunk in stage.chunks]
        shape = layers, stage.zero_stage, stage.reshard_after_forward, stage.recompute, stage.offload
        if index in (0, last):
            kinds[index] = "only" if last == 0 else "first" if index == 0 else "last"
        elif shape not in seen:
            seen.append(shape)
            kinds[index] = "middle"
    return kinds


def _as_data(document: PlanDocument, found: list["Comparison"]) -> dict[str, Any]:
    ranks = [
        {
            **asdict(one),
            "agrees": one.agrees,
            "quantities": [
                {**asdict(each), "verdict": each.verdict, "unexplained": each.unexplained} for each in one.quantities
            ],
        }
        for one in found
    ]
    agrees = all(one.agrees for one in found)
    return {"model": document.model.name, "gpus": document.parallelism.gpus_used, "agrees": agrees, "ranks": ranks}

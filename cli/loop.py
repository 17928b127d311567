"""`plan loop`: measure this machine, plan small models for it, run the plans, compare."""

import csv
import io
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import fmean
from typing import Any

from cli.extras import require_torch
from cli.measure import DEFAULT_MODELS, RECIPES, SMALL_STEP, measured_profile, model_file
from cli.output import print_json, print_text

Step = tuple[str, int | str]
"""Tokens of a sequence, sequences of a step, as they are given on a command line."""
PROFILE_S = {False: 90.0, True: 600.0}
TIMEOUT_S = 600.0
SEED = 0
# What the closed loop is to show, and which way.
WANTED: dict[str, tuple[str, float]] = {
    "time_error": ("<=", 0.20),
    "memory_error": ("<=", 0.10),
    "spearman": (">=", 0.90),
    "kendall_of_best": (">=", 0.60),
    "regret": ("<=", 0.05),
}
NAMES = {
    "time_error": "step time, mean error",
    "memory_error": "peak tensor bytes, mean error",
    "spearman": "Spearman, all plans",
    "kendall_of_best": "Kendall, best plans",
    "regret": "regret of the plan predicted fastest",
}


def loop(
    models: Sequence[str],
    *,
    ranks: int | None,
    profile: str | None,
    full: bool,
    seq_len: str | None,
    global_batch: str | None,
    counts: Mapping[str, int],
    rounds: int,
    steps: int,
    output: str | None,
    as_json: bool,
) -> int:
    """Runs the closed loop, prints what it shows; the exit code. Raises PlannerError, ProfilerError, RuntimeFault."""
    require_torch("loop")
    # Torch's own notes on memory that was allocated before it was counted would stand in between.
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    from planner.document.files import check_writable, write_text
    from runtime.loop import Rounds

    if output:
        check_writable(output)
    names = [model_file(name) for name in models or DEFAULT_MODELS["cpu"]]
    with tempfile.TemporaryDirectory() as folder:
        step = (seq_len or SMALL_STEP[0], global_batch or SMALL_STEP[1])
        path = profile or _measured(names, ranks, full, step, Path(folder) / "profile.json")
        outcomes = [_outcome(name, path, ranks, step, counts, Rounds(rounds, steps)) for name in names]
    if output:
        write_text(_as_csv(outcomes), output)
    if as_json:
        print_json({"models": [asdict(one) for one in outcomes], "mean": _means(outcomes), "wanted": WANTED})
    else:
        print_text(_as_text(outcomes))
    return 0


def _measured(names: Sequence[str], ranks: int | None, full: bool, step: Step, path: Path) -> str:
    """The file of a profile of this machine for the models."""
    from cost_models.specs.measured_profile import write

    print(f"plan: measuring this machine, {PROFILE_S[full]:.0f} s", file=sys.stderr)
    measured = measured_profile(
        names,
        device=None,
        method="full" if full else "quick",
        budget_s=PROFILE_S[full],
        ranks=ranks,
        seq_len=step[0],
        global_batch=step[1],
    )
    write(measured, path)
    return str(path)


def _outcome(name: str, profile: str, ranks: int | None, step: Step, counts: Mapping[str, int], rounds: Any) -> Any:
    """The plans of one model, run and compared."""
    from planner.document.job import job_of
    from planner.request import build_request
    from planner.trial_plans import trial_plans
    from planner.trial_results import outcome, result_of
    from profiler.timing import waited_s
    from runtime.errors import UnsupportedPlanError
    from runtime.loop import run
    from runtime.support import check

    def runs(document: Any) -> bool:
        try:
            check(job_of(document))
        except UnsupportedPlanError:
            return False
        return True

    request = build_request(
        name,
        ranks or _ranks_of(profile),
        profile=profile,
        seq_len=step[0],
        global_batch=step[1],
        target="runtime",
        recipe=_recipe_of(profile),
    ).replaced(fixed={"cp": 1})
    trials = trial_plans(
        request, best=counts["best"], at_random=counts["random"], bad=counts["bad"], seed=SEED, runs=runs
    )
    print(f"plan: running {len(trials)} plans of {request.model.name}", file=sys.stderr)
    turns: list[list[dict[str, Any]]] = [[] for _ in trials]
    peaks = [0.0] * len(trials)

    def tell(record: dict[str, Any]) -> None:
        if "peak_bytes" in record:
            peaks[record["job"]] = record["peak_bytes"]
        else:
            turns[record["job"]].append(record)

    jobs = [job_of(trial.document) for trial in trials]
    run(jobs, request.cluster.gpus, rounds, waited_s, tell, TIMEOUT_S)
    results = [
        result_of(trial.kind, _named(trial.document), _predicted(trial.document), of_plan, peak)
        for trial, of_plan, peak in zip(trials, turns, peaks, strict=True)
    ]
    return outcome(request.model.name, results)


def _recipe_of(profile: str) -> str:
    """The recipe that a profile was measured for: of the processor, or of a GPU that the catalog knows."""
    from cost_models.specs.catalog import names
    from cost_models.specs.measured_profile import read

    return RECIPES["cuda" if read(profile).cluster.gpu.name in names("gpus") else "cpu"]


def _ranks_of(profile: str) -> int:
    from cost_models.specs.measured_profile import read

    return read(profile).cluster.gpus


def _predicted(document: Any) -> tuple[float, float]:
    """Seconds of a step, and bytes of the tensors of the fullest stage."""
    return document.predicted.step_time_s, max(stage.predicted.allocated_bytes for stage in document.stages)


def _named(document: Any) -> str:
    """A plan in a few words: `TP 1, PP 2 x 2, DP 1, 2 x 4, zb-v, ZeRO 0, none`."""
    layout, stage = document.parallelism, document.stages[0]
    zero = f"ZeRO {stage.zero_stage}{' reshard' if stage.reshard_after_forward else ''}"
    recompute = "+".join(stage.recompute.set) or "none"
    sequence = " SP" if layout.sequence_parallel else ""
    return (
        f"TP {layout.tp}{sequence}, PP {layout.pp} x {layout.vpp}, DP {layout.dp}, "
        f"{layout.micro_batch_size} x {layout.num_microbatches}, {layout.schedule}, {zero}, {recompute}"
    )


def _means(outcomes: Sequence[Any]) -> dict[str, float]:
    return {
        name: fmean(getattr(one, name) for one in outcomes)
        for name in (*WANTED, "kendall_of_rounds", "noise", "waited")
    }


def _as_csv(outcomes: Sequence[Any]) -> str:
    rows = [
        {"model": one.model, **asdict(result), "turns_s": " ".join(f"{turn:.6g}" for turn in result.turns_s)}
        for one in outcomes
        for result in one.results
    ]
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _as_text(outcomes: Sequence[Any]) -> str:
    lines = []
    for one in outcomes:
        lines += [f"{one.model}: {len(one.results)} plans", ""]
        lines.append(
            f"{'':6}  {'predicted':>9}  {'measured':>9}  {'error':>7}  {'noise':>6}  {'MiB':>6}  {'error':>7}  plan"
        )
        for result in sorted(one.results, key=lambda result: result.measured_s):
            lines.append(
                f"{result.kind:6}  {result.predicted_s * 1e3:6.1f} ms  {result.measured_s * 1e3:6.1f} ms  "
                f"{result.time_error:+7.1%}  {result.noise:6.1%}  {result.measured_bytes / 2**20:6.0f}  "
                f"{result.memory_error:+7.1%}  {result.plan}"
            )
        lines.append("")
    means = _means(outcomes)
    for name, (sign, limit) in WANTED.items():
        met = means[name] <= limit if sign == "<=" else means[name] >= limit
        each = ", ".join(_shown(name, getattr(one, name)) for one in outcomes)
        verdict = "met" if met else "MISSED"
        lines.append(
            f"{NAMES[name]:38} {_shown(name, means[name]):>7}  ({each}; wanted {sign} {_shown(name, limit)}: {verdict})"
        )
    lines.append(f"{'Kendall, best plans, round by round':38} {means['kendall_of_rounds']:7.2f}")
    lines.append(f"{'noise of turns':38} {means['noise']:7.1%}")
    lines.append(f"{'time waited for a processor':38} {means['waited']:7.1%}")
    return "\n".join(lines) + "\n"


def _shown(name: str, value: float) -> str:
    return f"{value:.2f}" if name in ("spearman", "kendall_of_best") else f"{value:.1%}"

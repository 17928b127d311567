"""`python -m tests.benchmarks.accuracy FOLDER` scores predictions against the measured runs of a folder.

FOLDER holds runs.csv (the columns of `plan evaluate`); sanity.csv, where it is there, tells which rows are complete and
free of doubt; megatron_ci_memory.csv, where it is there, is scored by peak bytes (functional_tests.py). The figures of
LIMITS may not be worse than it says: then the exit code is 1. `--faults` also leaves out one column after the other,
`--strangers` what is known of a source or a GPU (strangers.py); `--plots FOLDER` writes scatter plots
(accuracy_plots.py).
"""

import argparse
import sys
from collections.abc import Callable, Hashable, Mapping
from pathlib import Path

import numpy as np

from planner.evaluate.answers import answers, read_rows
from planner.evaluate.statistics import Comparison, Errors, compare, errors, ranking, verdicts
from tests.benchmarks.accuracy_plots import write_plots
from tests.benchmarks.functional_tests import memory_errors
from tests.benchmarks.strangers import print_strangers

SCALES = ((8, "1-8 GPUs"), (64, "9-64 GPUs"), (256, "65-256 GPUs"), (10**9, "more GPUs"))
# What a change may not make worse, by figure; percent, but for the count of wrong verdicts.
LIMITS = {
    "step time, mean": 8.8,
    "step time, median": 6.1,
    "step time, mean of source means": 9.4,
    "step time, models with experts, mean": 13.6,
    "step time, worst source, mean": 17.0,
    "step time outside the band": 18.5,
    "ranking, mean regret": 1.6,
    "peak memory, mean of source means": 14.0,
    "peak memory, tests of Megatron-LM, mean": 3.4,
    "wrong verdicts on memory": 0.0,
    "borderline of runs that worked": 8.0,
}
# Of the rows, one in so many is tried without each column: neighbours are nearly the same run.
SAMPLED = 4
# Columns that sources leave out.
FAULTS = (
    "framework",
    "interconnect",
    "gpus_per_node",
    "precision",
    "recompute",
    "zero_or_fsdp",
    "micro_batch",
    "vpp",
    "tp",
    "pp",
    "ep",
    "global_batch_seqs",
    "attention_impl",
    "notes",
    "vocab",
    "ffn",
)


def main() -> int:
    """Print the tables; 1 where a figure is worse than its limit, else 0."""
    parser = argparse.ArgumentParser(description="Score predictions against the measured runs of a folder.")
    parser.add_argument("folder", type=Path, help="folder of runs.csv")
    parser.add_argument("--faults", action="store_true", help="also leave out one column after the other")
    parser.add_argument("--plots", type=Path, help="folder to write scatter plots to")
    parser.add_argument("--strangers", action="store_true", help="also predict as if sources and GPUs were unknown")
    arguments = parser.parse_args()
    rows = read_rows(arguments.folder / "runs.csv")
    known = complete(arguments.folder, rows)
    compared = compare(rows, answers(rows))
    core = [one for one in compared if one.row["id"] in known and one.time_error is not None]
    print_tables(core, compared)
    if arguments.plots:
        write_plots(core, compared, arguments.plots)
    if arguments.faults:
        print_faults([row for row in rows if row["id"] in known])
    if arguments.strangers:
        print_strangers(core, rows)
    found = figures(core, compared)
    tests = arguments.folder / "megatron_ci_memory.csv"
    if tests.exists():
        found |= print_tests(tests)
    return print_figures(found)


def print_tables(core: list[Comparison], compared: list[Comparison]) -> None:
    """None; errors by source, GPU, kind of model and scale are printed, and those of peak memory."""
    groups: dict[str, Callable[[Comparison], Hashable]] = {
        "source": lambda one: one.source,
        "GPU": lambda one: one.row.get("gpu", ""),
        "model": kind,
        "scale": lambda one: next(name for most, name in SCALES if int(one.row["n_gpus"]) <= most),
        "recipe": lambda one: one.answer.run.recipe.name if one.answer.run else "",
    }
    for name, group in groups.items():
        _print(f"step time by {name}", errors(core, lambda one: one.time_error, group))
    _print("step time", errors(core, lambda one: one.time_error, lambda one: "all"))
    _print("peak memory by source", errors(compared, lambda one: one.memory_error, lambda one: one.source))
    print("\n", ranking(core), "\n", verdicts(compared))


def print_tests(path: Path) -> dict[str, float]:
    """The figure of Megatron-LM's functional tests; their errors by family are printed."""
    found = memory_errors(read_rows(path))
    _print("peak memory of Megatron-LM's tests", found)
    total = sum(group.count for group in found.values())
    mean = sum(group.count * group.mean for group in found.values()) / total
    return {"peak memory, tests of Megatron-LM, mean": 100 * mean}


def figures(core: list[Comparison], compared: list[Comparison]) -> dict[str, float]:
    """The figures that LIMITS bounds."""
    everything = errors(core, lambda one: one.time_error, lambda one: "all")["all"]
    sources = [group.mean for group in errors(core, lambda one: one.time_error, lambda one: one.source).values()]
    experts = errors(core, lambda one: one.time_error, kind).get("experts")
    order = ranking(core)
    memory = [group.mean for group in errors(compared, lambda one: one.memory_error, lambda one: one.source).values()]
    worked = [one for one in compared if _worked(one)]
    return {
        "step time, mean": 100 * everything.mean,
        "step time, median": 100 * everything.median,
        "step time, mean of source means": 100 * float(np.mean(sources)),
        "step time, models with experts, mean": 100 * experts.mean if experts else 0.0,
        "step time, worst source, mean": 100 * max(sources),
        "step time outside the band": 100 * float(np.mean([not _inside(one) for one in core])),
        "ranking, mean regret": 100 * order.mean_regret if order else 0.0,
        "peak memory, mean of source means": 100 * float(np.mean(memory)),
        "wrong verdicts on memory": float(verdicts(compared).wrong),
        "borderline of runs that worked": 100 * float(np.mean([one.answer.fits == "borderline" for one in worked])),
    }


def _worked(one: Comparison) -> bool:
    """Whether the run is known to have worked."""
    measured = one.measured
    return not measured.out_of_memory and (measured.step_time_s is not None or measured.peak_bytes is not None)


def print_figures(found: dict[str, float]) -> int:
    """1 if a figure is beyond its limit, else 0; figures are printed beside their limits."""
    print(f"\n{'figure':40}{'now':>8}{'limit':>8}")
    for name, value in found.items():
        print(f"{name:40}{value:8.1f}{LIMITS[name]:8.1f}{'  WORSE' if value > LIMITS[name] else ''}")
    return int(any(value > LIMITS[name] for name, value in found.items()))


def print_faults(rows: list[dict[str, str]]) -> None:
    """None; how errors grow when a column is left out of every row that has it is printed, by column."""
    print(f"\n{'without the column':40}{'rows':>6}{'no answer':>10}{'mean %':>8}{'median':>8}{'before':>8}", flush=True)
    rows = rows[::SAMPLED]
    before = {one.row["id"]: one.time_error for one in compare(rows, answers(rows))}
    for column in FAULTS:
        having = [row for row in rows if row.get(column) and before.get(row["id"]) is not None]
        if not having:
            continue
        blanked = [row | {column: ""} for row in having]
        compared = [one for one in compare(blanked, answers(blanked)) if one.time_error is not None]
        # Where the batch is assumed, a step is another step: tokens a second are compared.
        whole = {row["id"]: row for row in having}
        sizes = np.array([abs(_tokens_error(one, whole[str(one.row["id"])])) for one in compared])
        was = np.mean([abs(before[row["id"]] or 0.0) for row in having])
        lost = len(having) - len(compared)
        print(
            f"{column:40}{len(having):6}{lost:10}{100 * sizes.mean():8.1f}{100 * np.median(sizes):8.1f}{100 * was:8.1f}"
        )


def _tokens_error(one: Comparison, whole: Mapping[str, str]) -> float:
    """Predicted over measured seconds of a token, less 1, for a row from which columns were left out.

    Measured is what the whole row says: its tokens a second, or its batch over its step.
    """
    run = one.answer.run
    assert run is not None
    if printed := whole.get("tokens_per_s_per_gpu"):
        return float(printed) * one.predicted_s * run.cluster.gpus / run.workload.tokens - 1.0
    assert one.measured.step_time_s is not None
    sequences = float(whole.get("global_batch_seqs") or run.workload.global_batch)
    return one.predicted_s / run.workload.global_batch * sequences / one.measured.step_time_s - 1.0


def _inside(one: Comparison) -> bool:
    """Whether the measured step lies in the band of the prediction."""
    cells = one.answer.cells()
    low, high = (float(cells[f"predicted_step_time_{end}_s"]) for end in ("low", "high"))
    return low <= (one.measured.step_time_s or 0.0) <= high


def kind(one: Comparison) -> str:
    """Whether the model has experts."""
    return "experts" if one.answer.run and one.answer.run.model.moe else "dense"


def complete(folder: Path, rows: list[dict[str, str]]) -> set[str]:
    """Rows of pretraining whose configuration is known in full; all of them where nothing tells."""
    if not (folder / "sanity.csv").exists():
        return {row["id"] for row in rows}
    return {
        row["id"]
        for row in read_rows(folder / "sanity.csv")
        if row["complete_core_filled"] == "1" and row["suspicious"] != "1" and row["task"] == "pretrain"
    }


def _print(title: str, by_group: dict[Hashable, Errors]) -> None:
    print(f"\n{title:40}{'rows':>6}{'mean %':>8}{'median':>8}{'bias':>8}{'in 10 %':>9}")
    for name, group in by_group.items():
        numbers = f"{100 * group.mean:8.1f}{100 * group.median:8.1f}{100 * group.bias:+8.1f}{100 * group.within:9.0f}"
        print(f"{str(name):40}{group.count:6,}{numbers}")


if __name__ == "__main__":
    sys.exit(main())

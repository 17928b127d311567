"""`python -m tests.benchmarks.accuracy FOLDER` scores predictions against the measured runs of a folder.

FOLDER holds runs.csv (the columns of `plan evaluate`); sanity.csv, where it is there, tells which rows are complete and
free of doubt; megatron_ci_memory.csv, where it is there, is scored by peak bytes (functional_tests.py).
"""

import sys
from collections.abc import Callable, Hashable
from pathlib import Path

from planner.evaluate.answers import answers, read_rows
from planner.evaluate.statistics import Comparison, Errors, compare, errors, ranking, verdicts
from tests.benchmarks.functional_tests import memory_errors

SCALES = ((8, "1-8 GPUs"), (64, "9-64 GPUs"), (256, "65-256 GPUs"), (10**9, "more GPUs"))


def main(folder: Path) -> None:
    """Print the tables."""
    rows = read_rows(folder / "runs.csv")
    compared = compare(rows, answers(rows))
    core = [one for one in compared if one.row["id"] in _complete(folder, rows)]
    groups: dict[str, Callable[[Comparison], Hashable]] = {
        "source": lambda one: one.source,
        "GPU": lambda one: one.row.get("gpu", ""),
        "model": lambda one: "experts" if one.answer.run and one.answer.run.model.moe else "dense",
        "scale": lambda one: next(name for most, name in SCALES if int(one.row["n_gpus"]) <= most),
    }
    for name, group in groups.items():
        _print(f"step time by {name}", errors(core, lambda one: one.time_error, group))
    _print("step time", errors(core, lambda one: one.time_error, lambda one: "all"))
    _print("peak memory by source", errors(compared, lambda one: one.memory_error, lambda one: one.source))
    print("\n", ranking(core), "\n", verdicts(compared))
    tests = folder / "megatron_ci_memory.csv"
    if tests.exists():
        _print("peak memory of Megatron-LM's tests", memory_errors(read_rows(tests)))


def _complete(folder: Path, rows: list[dict[str, str]]) -> set[str]:
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
        figures = f"{100 * group.mean:8.1f}{100 * group.median:8.1f}{100 * group.bias:+8.1f}{100 * group.within:9.0f}"
        print(f"{str(name):40}{group.count:6,}{figures}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))

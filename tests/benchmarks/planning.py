"""`python -m tests.benchmarks.planning` times the search, from 8 to 131,072 GPUs, and prints tables.

Each job is the command itself in a new process, once without lowered expressions kept by an earlier run and once with
them. Seconds depend on the machine; the ratios to the first row hardly do.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks import rows

COMMAND = (sys.executable, "-m", "cli.main")
MEMORY_LIMIT_MIB = 1536
GAP = 0.005


@dataclass(frozen=True)
class Job:
    """A planning job, and how long it may take in seconds on two cores, from a cold start with kept expressions."""

    name: str
    flags: tuple[str, ...]
    limit_s: float


JOBS = (
    Job("llama3-8b, 8 H100", ("--model", "llama3-8b", "--gpus", "8", "--gpu", "h100-sxm"), 1.5),
    Job("llama3-70b, 256 H100", ("--model", "llama3-70b", "--gpus", "256", "--gpu", "h100-sxm"), 3.0),
    Job(
        "llama3-405b, 16,384 H100, 3 tiers",
        ("--model", "llama3-405b", "--gpus", "16384", "--cluster", "llama3-roce"),
        6.0,
    ),
    Job("deepseek-v3, 2,048 H800", ("--model", "deepseek-v3", "--gpus", "2048", "--gpu", "h800-sxm"), 8.0),
    Job("llama3-405b, 131,072 H100", ("--model", "llama3-405b", "--gpus", "131072", "--gpu", "h100-sxm"), 15.0),
)
GROWTH = tuple(
    Job(f"llama3-8b, {gpus:,} H100", ("--model", "llama3-8b", "--gpus", str(gpus), "--gpu", "h100-sxm"), 15.0)
    for gpus in (8, 128, 2048, 16_384, 131_072)
)


@dataclass(frozen=True)
class Run:
    """What one run took, all its processes together, and what it proved."""

    wall_s: float
    cpu_s: float
    peak_mib: float
    layouts: int
    rows: int
    gap: float


def timed(job: Job, jobs: int | None, cache: Path) -> Run:
    """One run of a job in a new process; `cache` is where lowered expressions are kept."""
    with tempfile.TemporaryDirectory() as folder:
        stats = Path(folder) / "stats.json"
        command = [*COMMAND, *job.flags, "--json", "--stats", str(stats)]
        command += ["--jobs", str(jobs)] if jobs else []
        before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        environment = {**os.environ, "MESHPLAN_CACHE": str(cache)}
        done = subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
        wall_s, after = time.perf_counter() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
        facts: dict[str, Any] = json.loads(stats.read_text(encoding="utf-8"))
    certificate = json.loads(done.stdout)["certificate"]
    return Run(
        wall_s=wall_s,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        peak_mib=facts["peak_resident_bytes"] / 2**20,
        layouts=certificate["layouts"],
        rows=certificate["rows"],
        gap=certificate["gap"],
    )


def table(jobs: tuple[Job, ...], processes: int | None) -> None:
    """None; prints a row for each job. Ratios are of CPU seconds with kept expressions to those of the first row."""
    head = ("wall s", "limit", "cold s", "CPU s", "ratio", "MiB", "layouts", "rows", "gap %")
    print(f"{'job':35}" + "".join(f"{name:>9}" for name in head) + "  met")
    first_s = None
    for job in jobs:
        with tempfile.TemporaryDirectory() as folder:
            cold, kept = (timed(job, processes, Path(folder)) for _ in range(2))
        first_s = first_s or kept.cpu_s
        times = f"{kept.wall_s:9.2f}{job.limit_s:9.1f}{cold.wall_s:9.2f}{kept.cpu_s:9.2f}{kept.cpu_s / first_s:9.2f}"
        found = f"{kept.peak_mib:9.0f}{kept.layouts:9,}{kept.rows:9,}{100 * kept.gap:9.3f}"
        met = kept.wall_s <= job.limit_s and kept.peak_mib <= MEMORY_LIMIT_MIB and kept.gap <= GAP
        print(f"{job.name:35}{times}{found}  {'yes' if met else 'no'}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, help="processes of each search; without it what the command takes")
    processes = parser.parse_args().jobs
    table(JOBS, processes)
    print("\nGrowth with the number of GPUs")
    table(GROWTH, processes)
    print(f"\n{rows.report()}")


if __name__ == "__main__":
    main()

"""`python -m tests.benchmarks.planning` times the golden jobs, each in a process of its own, and prints a table.

Seconds depend on the machine; the ratios to the first job hardly do.
"""

import json
import subprocess
import sys
from typing import Any

from tests.golden.jobs import JOBS

RUN = """
import json, resource, time
started = time.perf_counter()
from tests.golden.jobs import JOBS
job = next(job for job in JOBS if job.name == {name!r})
certificate = job.document().certificate
usage = resource.getrusage(resource.RUSAGE_SELF)
print(json.dumps(dict(
    wall_s=time.perf_counter() - started,
    cpu_s=usage.ru_utime + usage.ru_stime,
    layouts=certificate.layouts,
    rows=certificate.rows,
    gap=certificate.gap,
)))
"""


def timed(name: str) -> dict[str, Any]:
    """What planning one job took, from a cold start, and how much was searched."""
    result = subprocess.run([sys.executable, "-c", RUN.format(name=name)], check=True, capture_output=True, text=True)
    measured: dict[str, Any] = json.loads(result.stdout)
    return measured


def main() -> None:
    """Print the table."""
    print(f"{'job':20}{'wall s':>8}{'CPU s':>8}{'ratio':>7}{'layouts':>9}{'rows':>9}{'rows/s':>9}{'gap %':>7}")
    first = None
    for job in JOBS:
        run = timed(job.name)
        first = first or run["cpu_s"]
        rate, ratio = run["rows"] / run["cpu_s"], run["cpu_s"] / first
        times = f"{run['wall_s']:8.2f}{run['cpu_s']:8.2f}{ratio:7.2f}"
        print(f"{job.name:20}{times}{run['layouts']:9,}{run['rows']:9,}{rate:9,.0f}{100 * run['gap']:7.3f}")


if __name__ == "__main__":
    main()

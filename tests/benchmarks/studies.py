"""`python -m tests.benchmarks.studies` times a study of 200 scenarios of llama3-70b, and tells where its time goes.

5 numbers of GPUs x 4 memories x 5 lengths x 2 batches, by the command itself in a new process, with nothing kept from
an earlier run but lowered expressions. The table, CSV, JSON and the report are made, too. CPU seconds are those of all
processes: on a busy machine they are what can be compared.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COMMAND = (sys.executable, "-m", "cli.main", "what-if", "--model", "llama3-70b", "--gpu", "h100-sxm", "--price", "2.5")
SWEEPS = (
    "gpus=64..1024:x2",
    "mem=40GB,80GB,141GB,192GB",
    "seq-len=8k..128k:x2",
    "global-batch-tokens=4M,8M",
)
SCENARIOS = 200
LIMIT_S = 60.0
SLOWEST = 10


def timed(jobs: int, folder: Path) -> tuple[float, float, dict[str, Any]]:
    """Wall and CPU seconds of the study, and its result."""
    files = [str(folder / name) for name in ("study.json", "study.csv", "kept", "report.html")]
    written = ("-o", files[0], "--csv", files[1], "--keep", files[2], "--report", files[3])
    command = [*COMMAND, "--jobs", str(jobs), *written]
    command += [part for sweep in SWEEPS for part in ("--sweep", sweep)]
    before, started_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**os.environ, "CI": "true"})
    wall_s, after = time.perf_counter() - started_s, resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return wall_s, cpu_s, json.loads(Path(files[0]).read_text(encoding="utf-8"))


def gaps(folder: Path) -> list[tuple[float, str]]:
    """Seconds between one finished scenario and the next, and the digest of the latter: where a study waits."""
    entries = sorted((path.stat().st_mtime, path.stem) for path in (folder / "kept").glob("*.json"))
    return sorted(((late - early, name) for (early, _), (late, name) in zip(entries, entries[1:], strict=False)))[::-1]


def main() -> None:
    """Print the times."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=2, help="scenarios at once")
    jobs = parser.parse_args().jobs
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wall_s, cpu_s, study = timed(jobs, folder)
        ended: dict[str, int] = {}
        for each in study["scenarios"]:
            ended[each["status"]] = ended.get(each["status"], 0) + 1
        met = "yes" if wall_s <= LIMIT_S and len(study["scenarios"]) == SCENARIOS else "no"
        print(f"{len(study['scenarios'])} scenarios ({ended}), {jobs} at once: {wall_s:.1f} s wall, {cpu_s:.1f} s CPU")
        print(f"at most {LIMIT_S:.0f} s wall: {met}")
        inputs = {each["digest"]: each["inputs"] for each in study["scenarios"]}
        print("longest waits for a scenario:")
        for seconds, digest in gaps(folder)[:SLOWEST]:
            print(f"  {seconds:6.2f} s  {inputs[digest]}")


if __name__ == "__main__":
    main()

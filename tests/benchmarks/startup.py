"""`python -m tests.benchmarks.startup` times what a command waits for before it works: seconds of processor time.

Each row is the best of some runs in new processes, as machines are noisy, with what it may take and its ratio to the
first. It leaves with 1 when a limit is passed.
"""

import os
import subprocess
import sys

RUNS = 5
# What is loaded before the clock starts, what is timed, and its limit in seconds.
ROWS = (
    ("plan --help", "", "from cli.main import run\nrun(['--help'])", 0.3),
    ("completion of a model", "", "from cli.completion import catalog_names\ncatalog_names('models')('llama')", 0.2),
    (
        "one profile with its tables",
        "from cost_models.specs.catalog import load_profile\n",
        "load_profile('h100-sxm')",
        0.1,
    ),
    (
        "the three expressions, built and lowered",
        "from cost_models.lower import lower\n"
        "from cost_models.stage import exchange_costs, micro_batch_costs, stage_costs\n"
        "from tests.cost_models.setting import CONTEXT_BYTES, MODELS, RECIPES, functions\n"
        "bound, model, recipe = functions(RECIPES['megatron']), MODELS['llama'], RECIPES['megatron']\n",
        "for costs in (micro_batch_costs(model, recipe), exchange_costs(model, recipe),"
        " stage_costs(model, recipe, CONTEXT_BYTES)):\n    lower(costs, bound)",
        0.5,
    ),
    (
        "a hundred megabytes refused",
        "import pathlib, tempfile\nfrom cost_models.specs.errors import SpecError\n"
        "from cost_models.specs.files import read_text\n"
        "path = pathlib.Path(tempfile.mkdtemp()) / 'config.json'\n"
        "with path.open('wb') as handle:\n    handle.truncate(100_000_000)\n",
        "try:\n    read_text(path)\nexcept SpecError:\n    path.unlink()",
        0.1,
    ),
)


def best_s(before: str, timed: str) -> float:
    """The least CPU seconds of the timed statements in a new process."""
    # A command pays for its own start as well.
    started = "time.process_time()" if before else "0.0"
    code = f"import sys, time\n{before}started_s = {started}\n{timed}\n"
    code += "print(time.process_time() - started_s, file=sys.stderr)"
    runs = []
    for _ in range(RUNS):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=os.environ)
        runs.append(float(done.stderr.split()[-1]))
    return min(runs)


def main() -> int:
    """Print the table; the exit code."""
    print(f"{'':44}{'CPU s':>8}{'limit':>8}{'ratio':>8}")
    first_s, late = None, False
    for name, before, timed, limit_s in ROWS:
        least_s = best_s(before, timed)
        first_s = first_s or least_s
        late = late or least_s > limit_s
        print(f"{name:44}{least_s:8.3f}{limit_s:8.1f}{least_s / first_s:8.2f}{'  over' if least_s > limit_s else ''}")
    return int(late)


if __name__ == "__main__":
    sys.exit(main())

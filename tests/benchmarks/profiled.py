"""`python -m tests.benchmarks.profiled` profiles the large jobs and prints where their time goes.

Seconds are CPU seconds under the profiler, which makes all of it slower: read shares and calls.
"""

import cProfile
import pstats
import time

from planner.request import build_request
from planner.search import plan

JOBS = (
    ("llama3-70b", 256, {"gpu": "h100-sxm"}),
    ("llama3-405b", 16_384, {"cluster": "llama3-roce"}),
    ("deepseek-v3", 2048, {"gpu": "h800-sxm"}),
)
# Steps of the search by file and function; those further down are part of those above.
STEPS = {
    ("search.py", "plan"): "the whole search",
    ("best_first.py", "listed"): "layouts and their bounds",
    ("seeds.py", "seeds"): "first plans",
    ("best_first.py", "_batches"): "what fullest stages need",
    ("options.py", "stage_options"): "options of stages",
    ("dynamic_program.py", "minimum_cost"): "dynamic program",
    ("cutting_planes.py", "cutting_planes"): "mixed-integer programs",
    ("pipeline.py", "step_s"): "replays",
    ("seeds.py", "neighbours"): "plans next to the best",
    ("predict.py", "stages"): "of all these: stage costs",
    ("predict.py", "micro_batch"): "of all these: micro-batch costs",
}


def profiled(model: str, gpus: int, flags: dict[str, str]) -> dict[str, tuple[int, float]]:
    """Calls of each step and its seconds, with all that it calls."""
    request = build_request(model, gpus, **flags)
    profile = cProfile.Profile(time.process_time, builtins=False)
    profile.runcall(plan, request)
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]
    found = {
        (path.rpartition("/")[2], name): (calls, total_s)
        for (path, _, name), (_, calls, _, total_s, _) in stats.items()
    }
    return {text: found.get(step, (0, 0.0)) for step, text in STEPS.items()}


def main() -> None:
    """Print a table a job."""
    for model, gpus, flags in JOBS:
        steps = profiled(model, gpus, flags)
        whole_s = steps["the whole search"][1]
        print(f"{model}, {gpus:,} GPUs")
        for text, (calls, seconds) in steps.items():
            print(f"  {text:35}{calls:8,} calls{seconds:8.2f} s{100 * seconds / whole_s:7.1f} %")


if __name__ == "__main__":
    main()

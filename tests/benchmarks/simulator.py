"""`python -m tests.benchmarks.simulator` times the replay of a million actions and of a thousand cost vectors.

Seconds are of one core and depend on the machine; the ratios to the first row of a table hardly do. Targets: a million
actions in 3 s, a thousand vectors on 8 ranks and 32 micro-batches in 1 s.
"""

import time
from collections.abc import Callable
from typing import Any

import numpy as np

from cost_models import schedules
from cost_models.schedules.critical_path import critical_path
from cost_models.schedules.graph import action_graph
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from cost_models.schedules.validity import check

MILLION = [("1f1b", 64, 1, 8192), ("gpipe", 8, 1, 65536), ("interleaved", 16, 8, 4096), ("interleaved", 64, 8, 1024)]
VECTORS = [1, 10, 100, 1000]


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    """What some work gives, and its CPU seconds."""
    started_s = time.process_time()
    result = work()
    return result, time.process_time() - started_s


def stage_times(p: int, v: int, batch: tuple[int, ...] = ()) -> StageTimes:
    """Stages that differ by up to a tenth, with a short hop."""
    rng = np.random.default_rng(0)
    return StageTimes.of(*(1 + 0.1 * rng.random((*batch, p, v)) for _ in range(3)), hop_s=0.05)


def million() -> None:
    """Print the parts of one replay: the table, its validity, the graph beyond that, the replay, the critical path."""
    heading = f"{'table s':>9}{'check s':>9}{'graph s':>9}{'replay s':>9}{'sum s':>9}{'ratio':>7}{'path s':>9}"
    print(f"{'schedule (p, v, m)':32}{'actions':>11}{'levels':>9}{heading}")
    first_s = None
    for name, p, v, m in MILLION:
        times = stage_times(p, v)
        table, table_s = timed(lambda shape=(name, p, v, m): schedules.actions(*shape))
        _, check_s = timed(lambda table=table: check(table))
        graph, both_s = timed(lambda table=table: action_graph(table))
        _, replay_s = timed(lambda table=table, times=times: simulate(table, times))
        _, path_s = timed(lambda table=table, times=times: critical_path(table, times))
        sum_s = table_s + both_s + replay_s
        first_s = first_s or sum_s
        label = f"{name} ({p}, {v}, {m})"
        size = f"{label:32}{table.actions:11,}{len(graph.level_start) - 1:9,}"
        parts = f"{table_s:9.2f}{check_s:9.2f}{max(both_s - check_s, 0):9.2f}{replay_s:9.2f}{sum_s:9.2f}"
        print(f"{size}{parts}{sum_s / first_s:7.2f}{path_s:9.2f}")


def thousand() -> None:
    """Print what many cost vectors on one graph take, all at once."""
    table = schedules.actions("1f1b", 8, 1, 32)
    simulate(table, stage_times(8, 1))
    print(f"\n{'vectors, 1f1b (8, 1, 32)':32}{'replay ms':>11}{'path ms':>9}{'us a vector':>13}{'ratio':>7}")
    first_us = None
    for count in VECTORS:
        times = stage_times(8, 1, (count,))
        _, replay_s = timed(lambda times=times: simulate(table, times))
        _, path_s = timed(lambda times=times: critical_path(table, times))
        each_us = 1e6 * replay_s / count
        first_us = first_us or each_us
        print(f"{count:<32,}{1e3 * replay_s:11.2f}{1e3 * path_s:9.2f}{each_us:13.1f}{each_us / first_us:7.3f}")


if __name__ == "__main__":
    million()
    thousand()

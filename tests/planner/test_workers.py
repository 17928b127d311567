"""More processes than one: the same answers in the same order, whoever found them."""

import os
import time
from concurrent.futures import wait

import pytest

from planner import best_first, search
from planner.document import dumps
from planner.errors import PlannerError
from planner.predict import CostModel
from planner.request import build_request
from planner.workers import Workers

SMALL = build_request("llama3-8b", 8, mem="40GB", global_batch=64, overrides=["model.layers=8"])


def whereabouts(model: CostModel, number: int) -> tuple[int, str, int]:
    """Which part it is, of which model, and in which process."""
    time.sleep(0.01)  # as long as a part takes: the others have time to fetch theirs
    return number, model.request.model.name, os.getpid()


def leave(model: CostModel, first: int) -> None:
    """None; any process but the first ends at once."""
    if os.getpid() != first:
        os._exit(1)


def started(jobs: int) -> Workers:
    """Workers of which all have loaded what they need."""
    workers = Workers(CostModel(SMALL), jobs)
    workers.start()
    wait(workers._ready)
    return workers


@pytest.mark.slow
def test_parts_come_back_in_order() -> None:
    """Other processes work on some of the parts, with the same model; the answers are in the order of the parts."""
    workers = started(3)
    try:
        found = workers.map(whereabouts, [(number,) for number in range(40)])
    finally:
        workers.stop()
    assert [number for number, _, _ in found] == list(range(40))
    assert {name for _, name, _ in found} == {SMALL.model.name}
    assert found[0][2] == os.getpid()
    assert {process for *_, process in found} > {os.getpid()}


def test_one_process_starts_no_other() -> None:
    """With one job, or before the others are started, all is done here."""
    for jobs in (1, 2):
        workers = Workers(CostModel(SMALL), jobs)
        if jobs == 1:
            workers.start()
        assert {process for *_, process in workers.map(whereabouts, [(1,), (2,)])} == {os.getpid()}
        workers.stop()


@pytest.mark.slow
def test_a_process_that_was_ended_is_told() -> None:
    """It is an error of planning that names the flag, not a crash of the pool."""
    workers = started(2)
    try:
        with pytest.raises(PlannerError, match="--jobs was ended; with --jobs 1"):
            workers.map(leave, [(os.getpid(),) for _ in range(8)])
    finally:
        workers.stop()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["any", "megatron"])
def test_plans_do_not_depend_on_jobs(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Documents are the same to the byte, however many processes took part."""
    request = build_request("llama3-8b", 32, mem="40GB", target=target)
    alone = dumps(search.plan(request, jobs=1))
    start = Workers.start

    def start_and_wait(workers: Workers) -> None:
        start(workers)
        wait(workers._ready)

    monkeypatch.setattr(best_first, "MANY_MESHES", 1)
    monkeypatch.setattr(Workers, "start", start_and_wait)
    assert dumps(search.plan(request, jobs=2)) == alone
    assert dumps(search.plan(request, jobs=3)) == alone

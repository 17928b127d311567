"""Nothing is dropped without a word: what is not searched is named, with the flag that adds it."""

import pytest

from planner.flag_values import SEARCHABLE, TARGETS
from planner.not_searched import not_searched
from planner.request import PlanRequest, build_request, schedules_of
from planner.rules import FLEXIBLE, SCHEDULES
from planner.space import schedule_names


def request_for(target: str = "any", **flags: str) -> PlanRequest:
    """A model with experts on two nodes."""
    return build_request("mixtral-8x7b", 16, gpu="h100", target=target, global_batch=64, **flags)


@pytest.mark.parametrize("target", TARGETS)
def test_every_schedule_is_searched_or_named(target: str) -> None:
    """For every target, and the flags beside them."""
    request = request_for(target)
    told = "; ".join(not_searched(request))
    for name in SCHEDULES:
        assert name in schedule_names(request) or name in told
    assert FLEXIBLE in request.schedules or f"--schedule {FLEXIBLE}" in told


def test_our_runtime_searches_every_schedule_that_there_is() -> None:
    """All that have action tables of whole models."""
    assert set(schedules_of("runtime")) == set(SCHEDULES)


def test_each_flag_of_search_takes_its_own_off_the_list() -> None:
    """Without any all are told with their flag; with one it is told no more; with all nothing is left of them."""
    assert all(any(name in line for line in not_searched(request_for()) if "--search" in line) for name in SEARCHABLE)
    for name in SEARCHABLE:
        told = not_searched(request_for("runtime", search=name))
        assert not any(name in line.rpartition("(--search ")[2] for line in told if "--search" in line)
    assert not any("--search" in line for line in not_searched(request_for("runtime", search=",".join(SEARCHABLE))))


def test_what_no_flag_adds_is_told_too() -> None:
    """Knobs that this version does not turn: they are named whatever is asked."""
    told = "; ".join(not_searched(request_for("runtime", search=",".join(SEARCHABLE))))
    for words in (
        "innermost network tier",
        "experts with HSDP",
        "repeating group",
        "two copies",
        "sets of modules",
        "TP or DP",
    ):
        assert words in told

"""Pipeline schedules as action tables, and the simulator that replays them.

A schedule is one module with the members of `Schedule`; everything else (validity, simulation, critical path, live
activations) reads action tables only and knows no schedule.
"""

from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol, cast

from cost_models.schedules.errors import IllegalScheduleError

if TYPE_CHECKING:
    from cost_models.schedules.bounds import BoundTerms
    from cost_models.schedules.table import ActionTable, BoolArray, IntArray
    from cost_models.schedules.times import FloatArray, StageTimes

_MODULES = {"gpipe": "gpipe", "1f1b": "one_f_one_b", "interleaved": "interleaved"}

NAMES = tuple(_MODULES)


class Schedule(Protocol):
    """What the module of a schedule offers. p ranks, v chunks a rank, m micro-batches."""

    NAME: str
    REQUIRES: str

    def legal(self, p: "int | IntArray", v: "int | IntArray", m: "int | IntArray") -> "BoolArray": ...

    def actions(self, p: int, v: int, m: int) -> "ActionTable": ...

    def closed_form_s(self, m: "int | IntArray", times: "StageTimes") -> "FloatArray": ...

    def lower_bound_s(self, m: "int | IntArray", times: "StageTimes") -> "FloatArray": ...

    def bound_terms(self, m: "int | IntArray", times: "StageTimes") -> "BoundTerms": ...


def schedule(name: str) -> Schedule:
    """The schedule of this name. Raises IllegalScheduleError for a name that is not in `NAMES`."""
    if name not in _MODULES:
        msg = f"schedule must be one of {', '.join(NAMES)}, got {name!r}"
        raise IllegalScheduleError(msg)
    return cast(Schedule, import_module(f"cost_models.schedules.{_MODULES[name]}"))


def actions(name: str, p: int, v: int, m: int) -> "ActionTable":
    """The action table of a schedule. Raises IllegalScheduleError where the schedule is not legal."""
    return schedule(name).actions(p, v, m)


@lru_cache(maxsize=4096)
def live_chunks(name: str, p: int, v: int, m: int) -> "IntArray":
    """[p, most, v] the Pareto-maximal live vectors of each rank (see `live.live_chunks`), kept."""
    from cost_models.schedules import live

    vectors = live.live_chunks(actions(name, p, v, m))
    vectors.setflags(write=False)
    return vectors

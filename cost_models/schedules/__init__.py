"""Pipeline schedules as action tables, and the simulator that replays them.

A schedule is one module with the members of `Schedule`; everything else (validity, simulation, critical path, live
activations) reads action tables only and knows no schedule.
"""

from functools import lru_cache, partial
from importlib import import_module
from types import SimpleNamespace
from typing import TYPE_CHECKING, Protocol, cast

from cost_models.schedules.errors import IllegalScheduleError

if TYPE_CHECKING:
    from cost_models.schedules.bounds import BoundTerms
    from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Placement
    from cost_models.schedules.times import FloatArray, StageTimes

_MODULES = {
    "gpipe": "gpipe",
    "1f1b": "one_f_one_b",
    "interleaved": "interleaved",
    "breadth-first": "breadth_first",
    "terapipe": "terapipe",
    "seq1f1b": "seq_1f1b",
    "slimpipe": "slimpipe",
    "zb-h1": "zb_h1",
    "zb-h2": "zb_h2",
    "zb-v": "zb_v",
    "v-half": "v_half",
    "v-min": "v_min",
    "dualpipe": "dualpipe",
    "dualpipe-v": "dualpipe_v",
}

NAMES = tuple(_MODULES)

SLICED = ("terapipe", "seq1f1b", "slimpipe")
"""Schedules that cut micro-batches into slices: their members take `slices` too, 1 by default."""
GROUPED = ("interleaved",)
"""Schedules with micro-batches in groups: their members take `group_size` too, by default their own smallest."""
V_SHAPED = ("zb-v", "v-half", "v-min", "dualpipe-v")
"""Schedules whose two chunks a rank go down the ranks and back (`table.v_placement`): rank 0 holds both ends."""
SPLIT = ("zb-h1", "zb-h2", "zb-v", "v-half", "v-min", "dualpipe", "dualpipe-v")
"""Schedules whose backwards are split: weight gradients, or some of them, wait for a moment that would be idle."""


class Schedule(Protocol):
    """What the module of a schedule offers. p ranks, v chunks a rank, m micro-batches.

    The members of a schedule in `SLICED` or `GROUPED` take one keyword more; `schedule` gives it to them.
    """

    NAME: str
    REQUIRES: str

    def legal(self, p: "int | IntArray", v: "int | IntArray", m: "int | IntArray") -> "BoolArray": ...

    def actions(self, p: int, v: int, m: int) -> "ActionTable": ...

    def closed_form_s(self, m: "int | IntArray", times: "StageTimes") -> "FloatArray": ...

    def lower_bound_s(self, m: "int | IntArray", times: "StageTimes") -> "FloatArray": ...

    def bound_terms(self, m: "int | IntArray", times: "StageTimes") -> "BoundTerms": ...


_MEMBERS = ("legal", "actions", "closed_form_s", "lower_bound_s", "bound_terms")


@lru_cache(maxsize=256)
def schedule(name: str, *, slices: int = 1, group_size: int | None = None) -> Schedule:
    """The schedule of this name, with micro-batches in so many slices or in groups of such a size.

    Raises IllegalScheduleError for a name that is not in `NAMES`, and for slices or a group size that it does not have.
    """
    if name not in _MODULES:
        msg = f"schedule must be one of {', '.join(NAMES)}, got {name!r}"
        raise IllegalScheduleError(msg)
    given: dict[str, int] = {}
    for size, value, default, takers in (("slices", slices, 1, SLICED), ("group_size", group_size, None, GROUPED)):
        if value != default and value is not None:
            if name not in takers:
                msg = f"{size} is for {', '.join(takers)}, got {value} for {name}"
                raise IllegalScheduleError(msg)
            given[size] = value
    module = import_module(f"cost_models.schedules.{_MODULES[name]}")
    if not given:
        return cast(Schedule, module)
    members = {member: partial(getattr(module, member), **given) for member in _MEMBERS}
    return cast(Schedule, SimpleNamespace(NAME=name, REQUIRES=module.REQUIRES, **members))


def actions(name: str, p: int, v: int, m: int, *, slices: int = 1, group_size: int | None = None) -> "ActionTable":
    """The action table of a schedule. Raises IllegalScheduleError where the schedule is not legal."""
    return schedule(name, slices=slices, group_size=group_size).actions(p, v, m)


def placement(name: str, p: int, v: int) -> "Placement":
    """Where a schedule that keeps one copy of the model puts its virtual stages: down and back, or round the ranks.

    Raises IllegalScheduleError for a V of other than two chunks a rank.
    """
    from cost_models.schedules.table import looped_placement, v_placement

    if name not in V_SHAPED:
        return looped_placement(p, v)
    if v != 2:
        msg = f"{name} has two chunks a rank, got {v}"
        raise IllegalScheduleError(msg)
    return v_placement(p)


@lru_cache(maxsize=4096)
def live_chunks(name: str, p: int, v: int, m: int, *, slices: int = 1, group_size: int | None = None) -> "IntArray":
    """[p, most, v] the Pareto-maximal live vectors of each rank (see `live.live_chunks`), kept."""
    from cost_models.schedules import live

    vectors = live.live_chunks(actions(name, p, v, m, slices=slices, group_size=group_size))
    vectors.setflags(write=False)
    return vectors

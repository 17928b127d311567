"""One step of an action table on the clock: when every action runs, and which of them the step waits for.

Seconds count from the beginning of the step. Rank i works `first_s`, runs its actions, works `last_s`; when the last
rank is through, the global part of the step follows on all ranks together (docs/cost_model.md).
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cost_models.schedules.critical_path import critical_actions
from cost_models.schedules.dependencies import dependencies
from cost_models.schedules.simulate import action_times
from cost_models.schedules.table import ActionTable, BoolArray, IntArray, Kind
from cost_models.schedules.times import FloatArray, StageTimes

__all__ = ["KIND_NAMES", "Hops", "Step", "action_name", "replayed"]

KIND_NAMES = {
    Kind.FORWARD: "forward",
    Kind.BACKWARD: "backward",
    Kind.INPUT_GRAD: "input_grad",
    Kind.WEIGHT_GRAD: "weight_grad",
}


@dataclass(frozen=True, eq=False)
class Hops:
    """What ranks receive from each other, one entry a message."""

    action: IntArray
    """[messages] the action that needs it."""
    source: IntArray
    """[messages] the action that sent it."""
    sent_s: FloatArray
    """[messages]"""
    arrived_s: FloatArray
    """[messages]"""


@dataclass(frozen=True, eq=False)
class Step:
    """A replayed step. Arrays over actions are in the order of the table."""

    table: ActionTable
    times: StageTimes
    """Without leading axes."""
    global_s: float
    """What follows the last rank's end: gradient norm, optimizer step, what nothing hides."""
    start_s: FloatArray
    """[actions]"""
    end_s: FloatArray
    """[actions]"""
    path: IntArray
    """[steps] the actions on a longest path, in order."""
    path_waited: BoolArray
    """[steps] whether the path came to the action over a hop; else from the action before it on its rank."""

    @property
    def ranks(self) -> int:
        return self.table.ranks

    @cached_property
    def rank(self) -> IntArray:
        """[actions] the rank that runs each action."""
        return self.table.rank_of()

    @cached_property
    def duration_s(self) -> FloatArray:
        """[actions]"""
        return self.end_s - self.start_s

    @cached_property
    def rank_end_s(self) -> FloatArray:
        """[ranks] when each rank is through, its last_s included."""
        end_s: FloatArray = self.end_s[self.table.rank_start[1:] - 1] + self.times.last_s
        return end_s

    @property
    def span_s(self) -> float:
        """Seconds until the last rank is through."""
        return float(self.rank_end_s.max())

    @property
    def step_s(self) -> float:
        """Seconds of the step, the global part included."""
        return self.span_s + self.global_s

    @cached_property
    def busy_s(self) -> FloatArray:
        """[ranks] seconds that each rank works until the last rank is through."""
        worked = np.bincount(self.rank, weights=self.duration_s, minlength=self.ranks)
        busy_s: FloatArray = worked + self.times.first_s + self.times.last_s
        return busy_s

    @property
    def bubble_s(self) -> FloatArray:
        """[ranks] seconds that each rank waits until the last rank is through."""
        return np.maximum(self.span_s - self.busy_s, 0.0)

    @cached_property
    def path_by_rank_s(self) -> FloatArray:
        """[ranks] seconds of the critical path that each rank works; hops and the global part are left out."""
        path = self.path
        worked = np.zeros(self.ranks)
        np.add.at(worked, self.rank[path], self.duration_s[path])
        first, last = self.rank[path[0]], self.rank[path[-1]]
        worked[first] += self.times.first_s[first]
        worked[last] += self.times.last_s[last]
        return worked

    def actions_of(self, rank: int) -> range:
        """The actions of a rank, in the order they run."""
        return range(int(self.table.rank_start[rank]), int(self.table.rank_start[rank + 1]))

    def edges(self, rank: int) -> list[tuple[str, float, float]]:
        """(name, start, end) of what the rank works beside its actions, where that takes time; seconds."""
        last_end_s = float(self.end_s[self.actions_of(rank)[-1]])
        found = (
            ("before the first forward", 0.0, float(self.times.first_s[rank])),
            ("after the last backward", last_end_s, last_end_s + float(self.times.last_s[rank])),
            ("global part of the step", self.span_s, self.step_s),
        )
        return [(name, start_s, end_s) for name, start_s, end_s in found if end_s > start_s]

    def hops(self) -> Hops:
        """What crosses a link and takes time, in the order it is sent."""
        needs = dependencies(self.table)
        seconds = np.append(self.times.hop_s, 0.0)[needs.link]
        action = np.flatnonzero((needs.source >= 0) & (seconds > 0))
        action = action[np.argsort(self.end_s[needs.source[action]], kind="stable")]
        sent_s = self.end_s[needs.source[action]]
        return Hops(action, needs.source[action], sent_s, sent_s + seconds[action])


def replayed(table: ActionTable, times: StageTimes, global_s: float = 0.0) -> Step:
    """The step that a table takes with the times of one assignment. Raises as `simulate`."""
    start_s, end_s = action_times(table, times)
    path, waited = critical_actions(table, times)
    return Step(table, times, global_s, start_s, end_s, path, waited)


def action_name(table: ActionTable, index: int) -> str:
    """The action as traces call it: `forward m3`, with `c1` where ranks hold chunks and `s2` where sequences are cut.

    >>> from cost_models.schedules import interleaved
    >>> action_name(interleaved.actions(2, 2, 4), 2)
    'forward m0 c1'
    """
    action = table.action(index)
    chunk = f" c{action.chunk}" if table.chunks > 1 else ""
    part = f" s{action.slice}" if table.slices > 1 else ""
    return f"{KIND_NAMES[action.kind]} m{action.micro_batch}{chunk}{part}"

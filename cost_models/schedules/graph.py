"""The action graph: a table laid out level by level, so that a replay is a few array operations a level."""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from cost_models.schedules.table import ActionTable, IntArray, Kind
from cost_models.schedules.validity import check


@dataclass(frozen=True, eq=False)
class ActionGraph:
    """Nodes 0 to ranks - 1 stand for the start of each rank, the others for the actions, sorted by level.

    All arrays but the last three are over the actions only, so that action node k is at k - ranks.
    """

    ranks: int
    chunks: int
    slices: int
    previous: IntArray
    """[actions] node that ran before on the same rank; the rank's start node for its first action."""
    source: IntArray
    """[actions] node that sent the data; `previous` again where none did, so that the maximum is always of two."""
    link: IntArray
    """[actions] link that the data crossed; `ranks` for none."""
    duration: IntArray
    """[actions] ((kind * ranks + rank) * chunks + chunk) * slices + slice: index of its seconds."""
    level_start: IntArray
    """[levels + 1] the nodes of level k are level_start[k] to level_start[k + 1]."""
    last: IntArray
    """[ranks] node of the last action of each rank."""
    node: IntArray
    """[actions] node of each action of the table."""

    @property
    def actions(self) -> int:
        return len(self.node)

    @cached_property
    def predecessors(self) -> tuple[list[int], list[int]]:
        """`previous` and `source` as plain lists, for loops over the actions."""
        return self.previous.tolist(), self.source.tolist()

    @property
    def durations(self) -> int:
        """How many different seconds the actions can have."""
        return len(Kind) * self.ranks * self.chunks * self.slices


@lru_cache(maxsize=64)
def action_graph(table: ActionTable) -> ActionGraph:
    """The graph of a table, kept for the tables used last. Raises InvalidTableError for a table that is not valid."""
    needs = check(table)
    order = np.argsort(needs.level, kind="stable")
    node = np.empty(table.actions, dtype=np.int64)
    node[order] = table.ranks + np.arange(table.actions)
    rank = table.rank_of()
    previous = np.where(needs.previous >= 0, node[needs.previous], rank)
    source = np.where(needs.source >= 0, node[needs.source], previous)
    cell = (table.kind.astype(np.int64) * table.ranks + rank) * table.chunks + table.chunk
    duration = cell * table.slices + table.slice
    return ActionGraph(
        ranks=table.ranks,
        chunks=table.chunks,
        slices=table.slices,
        previous=previous[order],
        source=source[order],
        link=needs.link[order],
        duration=duration[order],
        level_start=table.ranks + np.cumsum(np.bincount(needs.level)),
        last=node[table.rank_start[1:] - 1],
        node=node,
    )

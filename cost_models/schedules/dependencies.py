"""What each action of a table waits for, and the topological level at which it can run."""

from dataclasses import dataclass

import numpy as np

from cost_models.schedules.errors import InvalidTableError
from cost_models.schedules.table import ActionTable, IntArray, Kind


@dataclass(frozen=True, eq=False)
class Dependencies:
    """Predecessors of each action: at most the previous one on its rank and one that sends it data."""

    previous: IntArray
    """[actions] the action before it on its rank, -1 for the first."""
    source: IntArray
    """[actions] the action whose output it needs, -1 where that is implied by the order on its rank."""
    link: IntArray
    """[actions] the link that output crosses (`Placement.link`); the number of ranks where it crosses none."""
    level: IntArray
    """[actions] 1 + the largest level of its predecessors; levels start at 1."""


def cell_of(table: ActionTable) -> IntArray:
    """[actions] flat index of (rank, chunk, micro-batch, slice)."""
    cell = (table.rank_of() * table.chunks + table.chunk) * table.micro_batches + table.micro_batch
    return cell * table.slices + table.slice


def position_of(table: ActionTable, *kinds: Kind) -> IntArray:
    """[ranks, chunks, micro_batches * slices] the action of one of these kinds there, -1 for none."""
    position = np.full((table.ranks, table.chunks, table.micro_batches * table.slices), -1, dtype=np.int64)
    chosen = np.flatnonzero(np.isin(table.kind, kinds))
    position.reshape(-1)[cell_of(table)[chosen]] = chosen
    return position


def dependencies(table: ActionTable) -> Dependencies:
    """The predecessors and levels of a table that holds every action once.

    Raises InvalidTableError (rule "no deadlock") when some ranks wait for each other for ever.
    """
    previous = np.arange(-1, table.actions - 1)
    previous[table.rank_start[:-1]] = -1
    source = np.full(table.actions, -1, dtype=np.int64)
    link = np.full(table.actions, table.ranks, dtype=np.int64)
    place = table.placement
    stages = place.stages // place.routes
    gradients = (Kind.BACKWARD, Kind.INPUT_GRAD)
    for kinds, consumer, producer in (((Kind.FORWARD,), 1, 0), (gradients, 0, 1)):
        by_stage = position_of(table, *kinds)[place.rank, place.chunk].reshape(place.routes, stages, -1)
        into = by_stage[:, consumer : stages - 1 + consumer]
        # A micro-batch runs on the stages of its own route only.
        runs = into >= 0
        source[into[runs]] = by_stage[:, producer : stages - 1 + producer][runs]
        link[into[runs]] = np.broadcast_to(place.link.reshape(place.routes, -1, 1), into.shape)[runs]
    return Dependencies(previous, source, link, _levels(table, source))


def _levels(table: ActionTable, source: IntArray) -> IntArray:
    # A plain pass: each rank runs until it waits; whoever runs the awaited action wakes it. About 0.3 us an action.
    sources, starts = source.tolist(), table.rank_start.tolist()
    # What needs no data reads the extra last entry, which counts as run and is never the latest.
    level = [0] * table.actions + [-1]
    at, reached = starts[:-1], [0] * table.ranks
    awake, waiting = list(range(table.ranks)), dict[int, int]()
    while awake:
        rank = awake.pop()
        current = reached[rank]
        for index in range(at[rank], starts[rank + 1]):
            arrived = level[sources[index]]
            if arrived > current:
                current = arrived
            elif not arrived:
                waiting[sources[index]] = rank
                at[rank] = index
                break
            current += 1
            level[index] = current
            if index in waiting:
                awake.append(waiting.pop(index))
        reached[rank] = current
    if waiting:
        raise _deadlock(table, {rank: (at[rank], needed) for needed, rank in waiting.items()})
    return np.array(level[:-1], dtype=np.int64)


def _deadlock(table: ActionTable, stuck: dict[int, tuple[int, int]]) -> InvalidTableError:
    rank = min(stuck)
    index, needed = stuck[rank]
    holder = int(np.searchsorted(table.rank_start, needed, side="right")) - 1
    detail = f"{len(stuck)} ranks wait for ever; rank {rank} at {table.action(index)} waits for the "
    return InvalidTableError(
        table.schedule, "no deadlock", f"{detail}{table.action(needed).kind.name} of rank {holder}"
    )

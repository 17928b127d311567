"""States of a chain of stages, the amounts left over that some assignment passes through, and the moves between."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from solver.arrays import BoolArray, IntArray


@dataclass(frozen=True, eq=False)
class StageMoves:
    """Moves out of the states of one stage; a state is what this stage and the later ones still have to use up."""

    rows: IntArray
    """int[r]: rows of the problem that some feasible assignment uses at this stage, ascending."""
    group: IntArray
    """int[r]: which move a row makes: its index in `units` and in `source`."""
    units: IntArray
    """int[g]: units that the move uses."""
    source: IntArray
    """int[g, s]: state of the next stage that the move reaches from state s; the number of those if it reaches none."""


def build(
    stage: IntArray, units: IntArray, resource: IntArray, num_stages: int, totals: tuple[int, int]
) -> tuple[StageMoves, ...]:
    """Moves of each stage, from the whole of `totals` (units, resource) before the first to nothing after the last.

    Only the states that lie on such a way, and the rows that such a way uses, are kept: the tuple is empty when there
    is none. `stage`, `units` and `resource` are int[n].
    """
    grid = _Grid(*totals)
    within = np.flatnonzero((units <= totals[0]) & (resource <= totals[1]))
    within = within[np.argsort(stage[within], kind="stable")]
    cuts = np.searchsorted(stage[within], np.arange(num_stages + 1)).tolist()
    step = units * grid.stride + resource
    rows = [within[start:end] for start, end in zip(cuts[:-1], cuts[1:], strict=True)]
    steps = [grid.distinct(step[entry]) for entry in rows]

    usable_up = [np.zeros(1, dtype=np.int64)]
    for distinct, _ in reversed(steps):
        usable_up.append(grid.states((usable_up[-1][:, None] + distinct).ravel()))
    usable_up.reverse()
    states = np.array([grid.whole])
    if grid.whole not in usable_up[0]:
        return ()
    moves = []
    for entry, (distinct, group), allowed in zip(rows, steps, usable_up[1:], strict=True):
        left = states - distinct[:, None]
        number, states = grid.numbered(left, allowed)
        alive = np.any(number < len(states), axis=1)
        moves.append(_living_moves(entry, group, distinct // grid.stride, number, alive))
    return tuple(moves)


def _living_moves(rows: IntArray, group: IntArray, units: IntArray, source: IntArray, alive: BoolArray) -> StageMoves:
    """Moves of one stage without those, bool[g] in `alive`, that reach no state."""
    kept = alive[group]
    renumbered = np.cumsum(alive) - 1
    return StageMoves(rows[kept], renumbered[group[kept]], units[alive], source[alive])


class _Grid:
    """Pairs (units, resource) as one number each, so that using up an amount is one subtraction.

    A line of the grid is twice as long as the resource needs: a borrow or a carry lands in the unused half.
    """

    def __init__(self, total_units: int, total_resource: int) -> None:
        self.stride = 2 * total_resource + 1
        self.whole = total_units * self.stride + total_resource
        self._used = np.arange(self.whole + 1) % self.stride <= total_resource

    def distinct(self, numbers: IntArray) -> tuple[IntArray, IntArray]:
        """Distinct ones of `numbers` int[k], ascending, and which of them each is; counted, not sorted."""
        found = np.zeros(self.whole + 1, dtype=bool)
        found[numbers] = True
        return np.flatnonzero(found), (np.cumsum(found) - 1)[numbers]

    def states(self, numbers: IntArray) -> IntArray:
        """Distinct ones of `numbers` int[k] that are on the grid, ascending."""
        mask = np.zeros(self.whole + 1, dtype=bool)
        mask[numbers[numbers <= self.whole]] = True
        return np.flatnonzero(mask & self._used)

    def numbered(self, left: IntArray, allowed: IntArray) -> tuple[IntArray, IntArray]:
        """Index int[g, s] of `left` among the states reached, their count where not allowed, and those states."""
        # Negative amounts, down to -whole, index the upper half from the end: it holds nothing.
        hit = np.zeros(2 * self.whole + 1, dtype=bool)
        hit[allowed] = True
        reached = np.zeros_like(hit)
        reached[left.ravel()] = True
        states = np.flatnonzero(reached & hit)
        number = np.full(len(hit), len(states), dtype=np.int64)
        number[states] = np.arange(len(states))
        return number[left], states

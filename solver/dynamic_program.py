"""Exact assignments of options to the stages of a chain, by backward passes over the amounts left.

The cost of a chain, `max_i(edge_i + W_i)`, is no sum, and the edges make it a matter of two criteria. For a threshold
B, however, the least W of the rest of the chain among the assignments with every `edge + W <= B` obeys Bellman's
principle, as W never falls when the W behind it grows. One pass therefore tells whether a cost of B can be had, and a
search over B closes the gap between the best assignment found and a bound that the same passes give.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import inf

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import FloatArray, IntArray, float_column
from solver.chain import ChainProblem, ChainSolution, cost, without_choice
from solver.lattice import StageMoves

_TOLERANCE = 1e-10
"""Relative distance at which bound and best cost count as one, and at which assignments count as ties."""

_ROUNDING = 1e-12
"""Relative slack for sums that are taken in another order than the pass took them."""

_BLOCK_ENTRIES = 2**18
"""Rows times states handled at once: intermediate arrays stay in the cache, and small where the states are many."""


def minimum_cost(problem: ChainProblem, cutoff: float = inf) -> ChainSolution:
    """Assignment of the least cost, exact to 1e-9 relative; the first one in the order of the rows among ties.

    With a `cutoff`, the search ends with the status CUTOFF as soon as nothing can cost less than that.

    >>> two = ChainProblem([0, 0, 1, 1], [1, 2, 1, 2], [3.0, 5.0, 2.0, 4.0], [1.0] * 4, [0.0] * 4, 2, 3)
    >>> minimum_cost(two).choice.tolist(), minimum_cost(two).objective
    ([0, 3], 5.0)
    """
    if not problem.moves:
        return without_choice("INFEASIBLE")
    passes = _Passes(problem)
    found = passes.run(cutoff)
    bound = found.bound
    best = passes.cost_of_least_rest(found) if found.feasible else inf
    fraction = 0.25
    while bound * (1 + _TOLERANCE) < best and bound < cutoff:
        # Thresholds near the bound: a success raises the bound as well, a failure only as far as the next cost.
        found = passes.run(bound + fraction * (best - bound))
        if found.feasible:
            best = min(best, passes.cost_of_least_rest(found))
        fraction = 0.25 if found.feasible else 0.5
        bound = min(best, max(bound, found.bound))
    if bound >= cutoff:
        return without_choice("CUTOFF", bound, passes.calls)
    choice = passes.first_within(best * (1 + _TOLERANCE), found)
    objective = cost(problem, choice)
    return ChainSolution("OPTIMAL", choice, objective, min(bound, objective), passes.calls)


def minimum_sum(problem: ChainProblem, values: ArrayLike) -> ChainSolution:
    """Assignment with the least sum of `values` float[n] >= 0, one of each row; the first one in row order among ties.

    Of the problem only the stages and amounts matter.

    Raises:
        MalformedProblemError: `values` is not float[n], finite and >= 0.
    """
    column = float_column("values", values, len(problem.stage), nonnegative=True)
    if not problem.moves:
        return without_choice("INFEASIBLE")
    rests = [np.array([0.0, inf])]
    for moves in reversed(problem.moves):
        least = np.full(len(moves.units), inf)
        np.minimum.at(least, moves.group, column[moves.rows])
        rests.append(np.append((rests[-1][moves.source] + least[:, None]).min(axis=0), inf))
    rests.reverse()
    bound = float(rests[0][0])
    choice, state, spent = [], 0, 0.0
    for moves, rest in zip(problem.moves, rests[1:], strict=True):
        behind = rest[moves.source[:, state]][moves.group]
        position = int(np.argmax(column[moves.rows] + behind + spent <= bound * (1 + _TOLERANCE)))
        choice.append(moves.rows[position])
        spent += float(column[choice[-1]])
        state = int(moves.source[moves.group[position], state])
    return ChainSolution("OPTIMAL", np.array(choice), spent, min(bound, spent), oracle_calls=1)


def unit_windows(problem: ChainProblem) -> IntArray:
    """Least and most units of each stage over all feasible assignments, int[num_stages, 2]; int[0, 2] without any."""
    windows = [(moves.units.min(), moves.units.max()) for moves in problem.moves]
    return np.array(windows, dtype=np.int64).reshape(-1, 2)


@dataclass(frozen=True)
class _Pass:
    """What one backward pass found."""

    threshold: float
    rests: list[FloatArray]
    """float[s + 1] for each stage and for the end: the least W by state, infinite where the threshold forbids all."""
    bound: float
    """No assignment costs less."""

    @property
    def feasible(self) -> bool:
        """Whether some assignment costs no more than the threshold."""
        return bool(self.rests[0][0] < inf)


class _Passes:
    """Backward passes over one problem, and the assignments read off them."""

    def __init__(self, problem: ChainProblem) -> None:
        self.calls = 0
        self._problem = problem
        self._columns = [
            (problem.work[moves.rows], problem.pass_through[moves.rows], problem.edge[moves.rows])
            for moves in problem.moves
        ]

    def run(self, threshold: float) -> _Pass:
        """Backward pass that keeps every edge + W within the threshold."""
        self.calls += 1
        # Behind the last stage there is no W: with -inf its own is its work. The last entry is the missing state.
        rest = floor = np.array([-inf, inf])
        rests, rejected = [rest], inf
        for moves, columns in zip(reversed(self._problem.moves), reversed(self._columns), strict=True):
            rest, floor, least = _stage_pass(moves, columns, threshold, rest, floor)
            rests.append(rest)
            rejected = min(rejected, least)
        rests.reverse()
        # Feasible: the least W behind every entry bounds its cost. Else: under any threshold below the least cost
        # rejected, this pass would have gone the same way.
        bound = float(floor[0]) if rest[0] < inf else rejected
        return _Pass(threshold, rests, bound)

    def cost_of_least_rest(self, found: _Pass) -> float:
        """Cost of the assignment with the least W at the first stage, within the threshold of the pass."""
        choice, state = [], 0
        for stage, moves in enumerate(self._problem.moves):
            rest, edge = self._rest_and_edge(stage, state, found)
            rest[rest + edge > found.threshold] = inf
            position = int(rest.argmin())
            choice.append(moves.rows[position])
            state = int(moves.source[moves.group[position], state])
        return cost(self._problem, choice)

    def first_within(self, threshold: float, last: _Pass) -> IntArray:
        """First assignment in the order of the rows that costs no more than the threshold, int[num_stages]."""
        found = self.run(threshold) if self._problem.edge.any() else last
        choice, state, allowed = [], 0, inf
        for stage, moves in enumerate(self._problem.moves):
            rest, edge = self._rest_and_edge(stage, state, found)
            fits = (rest + edge <= threshold) & (rest <= allowed + _ROUNDING * threshold)
            position = int(fits.argmax())
            row = moves.rows[position]
            choice.append(row)
            # What the stages so far leave to the W behind them: each of them is entered at its edge and walked through.
            allowed = min(allowed, threshold - self._problem.edge[row]) - self._problem.pass_through[row]
            state = int(moves.source[moves.group[position], state])
        return np.array(choice)

    def _rest_and_edge(self, stage: int, state: int, found: _Pass) -> tuple[FloatArray, FloatArray]:
        """W and edge of each row of a stage in a state, float[r] each, with the least W behind it."""
        moves = self._problem.moves[stage]
        work, walk, edge = self._columns[stage]
        behind = found.rests[stage + 1][moves.source[:, state]][moves.group]
        return np.maximum(work, walk + behind), edge


def _stage_pass(
    moves: StageMoves,
    columns: tuple[FloatArray, FloatArray, FloatArray],
    threshold: float,
    rest: FloatArray,
    floor: FloatArray,
) -> tuple[FloatArray, FloatArray, float]:
    """Least W and cost floor by state, float[s + 1] each, one stage further to the front, and the least cost rejected.

    The floor takes at every stage the row that suits it best, whatever the W in front would have liked.
    """
    work, walk, edge = columns
    at_least = edge + work
    usable = np.flatnonzero(at_least <= threshold)
    rejected = float(at_least[at_least > threshold].min(initial=inf))
    behind, behind_floor = rest.take(moves.source), floor.take(moves.source)
    states = moves.source.shape[1]
    least, least_floor = np.full(states + 1, inf), np.full(states + 1, inf)
    block = max(1, _BLOCK_ENTRIES // states)
    for start in range(0, len(usable), block):
        rows = usable[start : start + block]
        group = moves.group[rows]
        walked = behind.take(group, axis=0)
        walked += walk[rows, None]
        np.maximum(walked, work[rows, None], out=walked)
        entered = walked + edge[rows, None]
        over = entered > threshold
        rejected = min(rejected, float(entered.min(where=over, initial=inf)))
        walked[over] = inf
        entered[over] = inf
        np.maximum(entered, behind_floor.take(group, axis=0), out=entered)
        np.minimum(least[:-1], walked.min(axis=0), out=least[:-1])
        np.minimum(least_floor[:-1], entered.min(axis=0), out=least_floor[:-1])
    return least, least_floor, rejected

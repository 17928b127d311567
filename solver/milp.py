"""Assignments by mixed-integer programming (PuLP, HiGHS), for constraints that a dynamic program cannot carry.

One binary an option, one equation a stage, amounts summed over the binaries themselves: without linking variables the
relaxation stays tight. HiGHS's tolerances are absolute: the costs are scaled, by a power of two lest they be rounded,
and what the tolerance leaves open is taken off the bound. Its restarts are off: 1.16.0 was seen to loop for ever after
one, past its time limit.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal

import numpy as np

from solver import lattice
from solver.arrays import BoolArray, FloatArray, IntArray
from solver.assignment import AssignmentProblem, Path
from solver.errors import BackEndError

if TYPE_CHECKING:
    import pulp

MilpStatus = Literal["OPTIMAL", "FEASIBLE", "CUTOFF", "INFEASIBLE", "UNKNOWN"]
"""OPTIMAL: proven best. FEASIBLE, UNKNOWN: a limit was reached with, without an assignment. CUTOFF: proven that nothing
lies below the cutoff, or that no assignment exists. INFEASIBLE: no assignment exists."""

_BACK_END_TOLERANCE = 1e-6
"""HiGHS prunes nodes that would improve its best solution by less than this."""

# Programs inside programs look for better choices than branching finds by itself: here it is the bound that takes time.
_NO_NEIGHBOURHOODS = {"mip_heuristic_run_rins": False, "mip_heuristic_run_rens": False}
_OPTIONS = {"gapAbs": 0.0, "threads": 1, "parallel": "off", "mip_allow_restart": False, **_NO_NEIGHBOURHOODS}

_SCALED_SIZE = 1024.0
"""Least size, after scaling, of the largest share that a row has in a cost: the tolerance is under 1e-9 of that."""

_PROCESS_LOCK = threading.Lock()


@dataclass(frozen=True, eq=False)
class MilpSolution:
    """Answer of one mixed-integer program."""

    status: MilpStatus
    choice: IntArray
    """int[num_stages]: row taken by each stage; empty when there is none."""
    objective: float
    """Cost of the choice under the paths of the model; infinity without one."""
    bound: float
    """No assignment costs less: proven, also when a limit was reached."""


def minimum_path_cost(
    problem: AssignmentProblem, *, cutoff: float = inf, relative_gap: float = 0.0, seconds: float = inf
) -> MilpSolution:
    """Assignment whose longest path, plus greatest global value, is the least.

    With a `cutoff`, ends with the status CUTOFF once nothing can cost less. OPTIMAL means within `relative_gap`.
    `seconds` is wall time: a run that it stops is not reproducible.

    Raises:
        BackEndError: PuLP or HiGHS is missing or broke down.
    """
    return AssignmentModel(problem, cutoff).solve(relative_gap, seconds)


class AssignmentModel:
    """A PuLP model of an assignment problem, to which paths can be added between solves."""

    def __init__(self, problem: AssignmentProblem, cutoff: float = inf) -> None:
        self._problem = problem
        self._cutoff = cutoff
        resource = np.zeros_like(problem.units) if problem.resource is None else problem.resource
        totals = (problem.total_units, problem.total_resource)
        moves = lattice.build(problem.stage, problem.units, resource, problem.num_stages, totals)
        # Rows that no assignment can use are no variables; without moves there is nothing to solve.
        self._rows = np.sort(np.concatenate([entry.rows for entry in moves])) if moves else np.empty(0, dtype=np.int64)
        if len(self._rows):
            self._scale = self._scale_of_costs()
            self._paths: list[Path] = []
            self._build()

    def _build(self) -> None:
        """None; variables and rows of the model."""
        import pulp

        problem = self._problem
        self._pulp = pulp.LpProblem("assignment", pulp.LpMinimize)
        self._taken = [self._pulp.add_variable(f"row_{row}", cat=pulp.LpBinary) for row in self._rows.tolist()]
        highest = self._cutoff * self._scale if isfinite(self._cutoff) else None
        self._cost = self._pulp.add_variable("cost", None, highest)
        self._pulp.setObjective(pulp.lpSum([self._cost]))
        ones = np.ones(len(problem.stage))
        for stage in range(problem.num_stages):
            self._pulp += self._sum(ones * (problem.stage == stage)) == 1.0
        self._pulp += self._sum(problem.units) == float(problem.total_units)
        if problem.resource is not None:
            self._pulp += self._sum(problem.resource) == float(problem.total_resource)
        for constraint in problem.side_constraints:
            factor = _reciprocal_power_of_two(np.abs(constraint.coefficients[self._rows]).max())
            side, limit = self._sum(constraint.coefficients * factor), constraint.right_hand_side * factor
            self._pulp += {"<=": side <= limit, ">=": side >= limit, "==": side == limit}[constraint.sense]
        self._global = None
        if problem.global_value is not None:
            self._global = self._pulp.add_variable("greatest_global")
            for stage in range(problem.num_stages):
                share = self._sum(problem.global_value * (problem.stage == stage) * self._scale)
                self._pulp += self._global - share >= 0.0
        for path in problem.paths:
            self.add_path(path)

    def add_path(self, path: Path) -> None:
        """None; the cost is at least the length of the path from now on.

        Raises:
            MalformedProblemError: the path has not the shape that the problem asks for.
        """
        self._problem.check_path(path)
        if not len(self._rows):
            return
        self._paths.append(path)
        excess = self._cost - self._sum(self._problem.row_weights(path) * self._scale)
        if self._global is not None:
            excess = excess - self._global
        self._pulp += excess >= path.constant * self._scale

    def keep(self, rows: BoolArray) -> None:
        """None; of the rows, bool[n], those alone can be taken from now on. Others are known to be over the cutoff."""
        for variable, kept in zip(self._taken if len(self._rows) else (), rows[self._rows].tolist(), strict=True):
            variable.upBound = float(kept)

    def _sum(self, weights: FloatArray | IntArray) -> pulp.LpAffineExpression:
        """Sum of the binaries, weighted by float[n] over all rows of the problem."""
        import pulp

        chosen = weights[self._rows]
        used = np.flatnonzero(chosen)
        # Term by term: `lpDot` takes five times as long, and no constructor is common to PuLP 3 and 4.
        total = pulp.lpSum([])
        for position, weight in zip(used.tolist(), chosen[used].astype(float).tolist(), strict=True):
            total.addterm(self._taken[position], weight)
        return total

    def solve(self, relative_gap: float = 0.0, seconds: float = inf) -> MilpSolution:
        """Best assignment for the paths so far, within `relative_gap` of the bound or of what `seconds` allow.

        Raises:
            BackEndError: PuLP or HiGHS broke down, or returned an assignment that is none.
        """
        if not len(self._rows):
            return _without_choice("INFEASIBLE", inf)
        import pulp

        _print_banner_nowhere()
        limit = max(0.0, seconds) if isfinite(seconds) else None
        try:
            self._pulp.solve(pulp.HiGHS(msg=False, timeLimit=limit, gapRel=relative_gap, **_OPTIONS))
        except pulp.PulpSolverError as error:
            message = f"HiGHS must be installed and able to solve the model: {error}"
            raise BackEndError(message) from error
        return self._read()

    def _read(self) -> MilpSolution:
        """What the last solve proved. PuLP's `status` says optimal after a time-out; only `sol_status` tells."""
        import pulp

        if self._pulp.sol_status == pulp.LpSolutionInfeasible:
            # With a cutoff the model is also infeasible when all assignments cost more.
            return _without_choice("CUTOFF" if isfinite(self._cutoff) else "INFEASIBLE", self._cutoff)
        info = self._pulp.solverModel.getInfo()
        proven = (info.mip_dual_bound - _BACK_END_TOLERANCE) / self._scale
        choice = self._choice() if isfinite(info.objective_function_value) else None
        optimal = self._pulp.sol_status == pulp.LpSolutionOptimal
        if choice is None:
            if optimal:
                message = "HiGHS must return one row a stage that meet the totals of the problem, and did not"
                raise BackEndError(message)
            return _without_choice("UNKNOWN", proven)
        problem = self._problem
        longest = max(problem.path_length(path, choice) for path in self._paths)
        objective = longest + problem.greatest_global(choice)
        return MilpSolution("OPTIMAL" if optimal else "FEASIBLE", choice, objective, min(proven, objective))

    def _choice(self) -> IntArray | None:
        """Row of each stage in the last solution, int[num_stages]; None when the solution holds no assignment."""
        problem = self._problem
        taken = [variable.value() for variable in self._taken]
        choice = self._rows[[value is not None and value > 0.5 for value in taken]]
        choice = choice[np.argsort(problem.stage[choice])]
        if not np.array_equal(problem.stage[choice], np.arange(problem.num_stages)):
            return None
        resource = 0 if problem.resource is None else problem.resource[choice].sum()
        totals_met = problem.units[choice].sum() == problem.total_units and resource == problem.total_resource
        return choice if totals_met else None

    def _scale_of_costs(self) -> float:
        """Power of two that brings the largest share of a cost to `_SCALED_SIZE` or up to twice that."""
        problem = self._problem
        shares = [np.abs(problem.row_weights(path)[self._rows]).max() for path in problem.paths]
        shares += [abs(path.constant) for path in problem.paths]
        if problem.global_value is not None:
            shares.append(np.abs(problem.global_value[self._rows]).max())
        return 2.0 * _SCALED_SIZE * _reciprocal_power_of_two(max(shares))


def _reciprocal_power_of_two(size: float) -> float:
    """Power of two whose product with `size` lies in [1/2, 1); 1 for a size of 0."""
    return float(2.0 ** -np.frexp(size)[1]) if size else 1.0


def _without_choice(status: MilpStatus, bound: float) -> MilpSolution:
    """Solution that holds no choice."""
    return MilpSolution(status, np.empty(0, dtype=np.int64), inf, bound)


@cache
def _print_banner_nowhere() -> None:
    """None; HiGHS prints its banner once a process, before its output can be turned off: this time to nowhere."""
    import highspy

    with _PROCESS_LOCK, _standard_output_to_nowhere():
        highspy.Highs()


@contextlib.contextmanager
def _standard_output_to_nowhere() -> Iterator[None]:
    """Context in which file descriptor 1 leads nowhere; Python's own buffers are untouched."""
    try:
        saved = os.dup(1)
    except OSError:  # closed by the caller: nothing can reach it
        yield
        return
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 1)
        yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)
        os.close(nowhere)

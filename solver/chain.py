"""A chain of stages, each taking one option, and what an assignment costs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from solver import lattice
from solver.arrays import FloatArray, IntArray, float_column, int_column
from solver.errors import MalformedProblemError
from solver.lattice import StageMoves

ChainStatus = Literal["OPTIMAL", "CUTOFF", "INFEASIBLE"]
"""OPTIMAL: proven best. CUTOFF: proven that nothing lies below the cutoff. INFEASIBLE: no assignment exists."""


@dataclass(frozen=True, eq=False)
class ChainProblem:
    """Options of the stages of a chain: one row an option, rows of a stage in order of preference.

    Each stage takes exactly one of its rows; the units taken must add up to `total_units`, and likewise the resource.
    With one row a stage, the cost is `max_i(edge_i + W_i)` with `W_i = max(work_i, pass_through_i + W_{i+1})` and
    `W = work` at the last stage: enter at stage i, walk to stage k, do all of its work, come back.

    Arrays are copied, checked and made read-only.

    Raises:
        MalformedProblemError: naming the field, what was found and what is allowed.
    """

    stage: IntArray
    """int[n]: stage of the row, in [0, num_stages)."""
    units: IntArray
    """int[n]: units that the row uses, >= 0."""
    work: FloatArray
    """float[n]: cost of turning back at this stage, >= 0."""
    pass_through: FloatArray
    """float[n]: cost of walking through this stage to a later one and back, >= 0."""
    edge: FloatArray
    """float[n]: cost of entering the chain at this stage, >= 0."""
    num_stages: int
    """Number of stages, >= 1."""
    total_units: int
    """What the units of an assignment add up to, >= 0."""
    resource: IntArray | None = None
    """int[n]: what the row uses of a second amount, >= 0; None when there is none."""
    total_resource: int = 0
    """What the resource of an assignment adds up to, >= 0."""

    def __post_init__(self) -> None:
        """None; the arrays are replaced by checked, read-only columns."""
        for name, least in (("num_stages", 1), ("total_units", 0), ("total_resource", 0)):
            if getattr(self, name) < least:
                raise MalformedProblemError(
                    field=f"ChainProblem.{name}", found=getattr(self, name), allowed=f">= {least}"
                )
        if self.resource is None and self.total_resource:
            raise MalformedProblemError(
                field="ChainProblem.total_resource", found=self.total_resource, allowed="0 without a resource"
            )
        length = len(self.stage)
        self._replace("stage", int_column("ChainProblem.stage", self.stage, length, below=self.num_stages))
        self._replace("units", int_column("ChainProblem.units", self.units, length))
        if self.resource is not None:
            self._replace("resource", int_column("ChainProblem.resource", self.resource, length))
        for name in ("work", "pass_through", "edge"):
            column = float_column(f"ChainProblem.{name}", getattr(self, name), length, nonnegative=True)
            self._replace(name, column)

    def _replace(self, name: str, value: IntArray | FloatArray) -> None:
        """None; a field of this frozen instance is set, during construction only."""
        object.__setattr__(self, name, value)

    @cached_property
    def moves(self) -> tuple[StageMoves, ...]:
        """Moves of each stage over the amounts left, built once; empty when no assignment uses up the totals."""
        resource = np.zeros_like(self.units) if self.resource is None else self.resource
        totals = (self.total_units, self.total_resource)
        return lattice.build(self.stage, self.units, resource, self.num_stages, totals)


@dataclass(frozen=True, eq=False)
class ChainSolution:
    """Answer of a dynamic program over a chain."""

    status: ChainStatus
    choice: IntArray
    """int[num_stages]: row taken by each stage; empty unless OPTIMAL."""
    objective: float
    """Cost of the choice; infinity without one."""
    bound: float
    """No assignment costs less than this; infinity when INFEASIBLE."""
    oracle_calls: int
    """Backward passes that it took."""

    @property
    def feasible(self) -> bool:
        """Whether there is a choice."""
        return len(self.choice) > 0


def without_choice(status: ChainStatus, bound: float = inf, oracle_calls: int = 0) -> ChainSolution:
    """Solution that holds no choice."""
    return ChainSolution(status, np.empty(0, dtype=np.int64), inf, bound, oracle_calls)


def cost(problem: ChainProblem, choice: ArrayLike) -> float:
    """Cost of an assignment, `choice` int[num_stages] being the row of each stage (the amounts are not checked)."""
    rows = np.asarray(choice)
    columns = (problem.work[rows].tolist(), problem.pass_through[rows].tolist(), problem.edge[rows].tolist())
    walked, worst = -inf, 0.0
    for work, pass_through, edge in reversed(list(zip(*columns, strict=True))):
        walked = max(work, pass_through + walked)
        worst = max(worst, edge + walked)
    return worst

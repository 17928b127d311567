"""Assignments whose cost is the longest of many paths: what goes to the mathematical-programming back end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike

from solver.arrays import FloatArray, IntArray, check_entries, float_column, int_column
from solver.chain import ChainProblem
from solver.errors import MalformedProblemError

Sense = Literal["<=", ">=", "=="]


@dataclass(frozen=True, eq=False)
class Path:
    """One lower bound of the cost, linear in the features of the chosen rows.

    The cost is at least `constant + sum_i coefficients[i] . features[choice_i]`.

    Raises:
        MalformedProblemError: coefficients that are not a finite matrix, or a constant that is not finite.
    """

    coefficients: FloatArray
    """float[num_stages, q]: weight of each feature at each stage."""
    constant: float = 0.0

    def __post_init__(self) -> None:
        """None; the coefficients become a checked, read-only matrix."""
        matrix = np.array(self.coefficients, dtype=np.float64)
        if matrix.ndim != 2:
            raise MalformedProblemError(
                field="Path.coefficients", found=f"shape {matrix.shape}", allowed="of shape [num_stages, q]"
            )
        check_entries("Path.coefficients", matrix)
        check_entries("Path.constant", np.array([self.constant]))
        matrix.flags.writeable = False
        object.__setattr__(self, "coefficients", matrix)


@dataclass(frozen=True, eq=False)
class SideConstraint:
    """A limit shared by the stages: the coefficients of the chosen rows, summed, against the right-hand side.

    Raises:
        MalformedProblemError: coefficients that are not finite, or an unknown sense.
    """

    coefficients: FloatArray
    """float[n]: one a row of the problem."""
    sense: Sense
    right_hand_side: float

    def __post_init__(self) -> None:
        """None; the coefficients become a checked, read-only column."""
        if self.sense not in ("<=", ">=", "=="):
            raise MalformedProblemError(
                field="SideConstraint.sense", found=repr(self.sense), allowed="'<=', '>=' or '=='"
            )
        check_entries("SideConstraint.right_hand_side", np.array([self.right_hand_side]))
        column = float_column("SideConstraint.coefficients", self.coefficients)
        object.__setattr__(self, "coefficients", column)


@dataclass(frozen=True, eq=False)
class AssignmentProblem:
    """Options of the stages: one row an option; each stage takes exactly one of its rows.

    The cost is the longest path plus, where given, the greatest global value of the chosen rows.

    Raises:
        MalformedProblemError: naming the field, what was found and what is allowed.
    """

    stage: IntArray
    """int[n]: stage of the row, in [0, num_stages)."""
    units: IntArray
    """int[n]: units that the row uses, >= 0."""
    features: FloatArray
    """float[n, q]: what the paths weigh."""
    num_stages: int
    """Number of stages, >= 1."""
    total_units: int
    """What the units of an assignment add up to, >= 0."""
    paths: tuple[Path, ...]
    """At least one."""
    global_value: FloatArray | None = None
    """float[n]: the greatest of the chosen rows is added to the cost; None when there is none."""
    side_constraints: tuple[SideConstraint, ...] = ()
    resource: IntArray | None = None
    """int[n]: what the row uses of a second amount, >= 0; None when there is none."""
    total_resource: int = 0
    """What the resource of an assignment adds up to, >= 0."""

    def __post_init__(self) -> None:
        """None; the arrays are replaced by checked, read-only ones."""
        name, length = type(self).__name__, len(self.stage)
        if self.num_stages < 1 or self.total_units < 0 or self.total_resource < 0:
            found = (self.num_stages, self.total_units, self.total_resource)
            raise MalformedProblemError(
                field=f"{name}.(num_stages, total_units, total_resource)", found=found, allowed=">= (1, 0, 0)"
            )
        if self.resource is None and self.total_resource:
            raise MalformedProblemError(
                field=f"{name}.total_resource", found=self.total_resource, allowed="0 without a resource"
            )
        features = np.array(self.features, dtype=np.float64)
        if features.ndim != 2 or len(features) != length:
            raise MalformedProblemError(
                field=f"{name}.features", found=f"shape {features.shape}", allowed=f"of shape [{length}, q]"
            )
        check_entries(f"{name}.features", features)
        features.flags.writeable = False
        columns: dict[str, IntArray | FloatArray] = {
            "stage": int_column(f"{name}.stage", self.stage, length, below=self.num_stages),
            "units": int_column(f"{name}.units", self.units, length),
            "features": features,
        }
        if self.resource is not None:
            columns["resource"] = int_column(f"{name}.resource", self.resource, length)
        if self.global_value is not None:
            columns["global_value"] = float_column(f"{name}.global_value", self.global_value, length)
        for field, column in columns.items():
            object.__setattr__(self, field, column)
        if not self.paths:
            raise MalformedProblemError(
                field=f"{name}.paths", found="none", allowed="at least one: without a path the cost has no floor"
            )
        for path in self.paths:
            self.check_path(path)
        for constraint in self.side_constraints:
            float_column(f"{name}.side_constraints", constraint.coefficients, length)

    def check_path(self, path: Path) -> None:
        """None; the path has the shape that this problem asks for.

        Raises:
            MalformedProblemError: it has another.
        """
        shape = (self.num_stages, self.features.shape[1])
        if path.coefficients.shape != shape:
            raise MalformedProblemError(
                field="Path.coefficients", found=f"shape {path.coefficients.shape}", allowed=f"of shape {shape}"
            )

    def row_weights(self, path: Path) -> FloatArray:
        """Share of each row in the length of a path that takes it, float[n]."""
        weights: FloatArray = np.einsum("nq,nq->n", path.coefficients[self.stage], self.features)
        return weights

    def path_length(self, path: Path, choice: ArrayLike) -> float:
        """Length of a path under an assignment, `choice` int[num_stages] being the row of each stage."""
        return path.constant + float(self.row_weights(path)[np.asarray(choice)].sum())

    def greatest_global(self, choice: ArrayLike) -> float:
        """Greatest global value of the chosen rows; 0 when there is none."""
        return 0.0 if self.global_value is None else float(self.global_value[np.asarray(choice)].max())


def chain_paths(problem: ChainProblem) -> tuple[Path, ...]:
    """Paths whose longest one is the cost of the chain, over the features (work, pass_through, edge).

    One for each stage of entry and stage of return behind it. A stage whose edges are all zero needs no entry of its
    own: the path that comes from the stage in front is at least as long.
    """
    paths = []
    for entry in range(problem.num_stages):
        if entry and not problem.edge[problem.stage == entry].any():
            continue
        for turn in range(entry, problem.num_stages):
            coefficients = np.zeros((problem.num_stages, 3))
            coefficients[turn, 0] = 1.0
            coefficients[entry:turn, 1] = 1.0
            coefficients[entry, 2] = 1.0
            paths.append(Path(coefficients))
    return tuple(paths)


def chain_assignment(
    problem: ChainProblem,
    *,
    paths: tuple[Path, ...] | None = None,
    side_constraints: tuple[SideConstraint, ...] = (),
) -> AssignmentProblem:
    """The chain as an assignment problem, with all of its paths unless others are given."""
    return AssignmentProblem(
        stage=problem.stage,
        units=problem.units,
        features=np.stack((problem.work, problem.pass_through, problem.edge), axis=1),
        num_stages=problem.num_stages,
        total_units=problem.total_units,
        paths=chain_paths(problem) if paths is None else paths,
        side_constraints=side_constraints,
        resource=problem.resource,
        total_resource=problem.total_resource,
    )

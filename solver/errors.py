"""Exceptions of the solver.

SolverError
├── MalformedProblemError   an array or a number of a problem is not what its field allows (also a ValueError)
└── BackEndError            the mathematical-programming back end is missing, or returned what it may not

An infeasible problem is an answer, not an error: see the `status` of the solutions.
"""

from __future__ import annotations


class SolverError(Exception):
    """Base of every exception that this package raises."""


class MalformedProblemError(SolverError, ValueError):
    """A field of a problem holds a value that it may not.

    Attributes:
        field: name of the field at fault, for example `ChainProblem.units`.
    """

    def __init__(self, *, field: str, found: object, allowed: str) -> None:
        super().__init__(f"{field} must be {allowed}, got {found}")
        self.field = field


class BackEndError(SolverError, RuntimeError):
    """The back end cannot be used, or its answer breaks the problem that it was given."""

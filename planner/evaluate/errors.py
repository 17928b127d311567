"""Why a row has no prediction.

RunError                    a row that cannot be predicted; the message names the column, the value and what is allowed
├── UnsupportedRunError     a run of a kind that no cost model here describes
└── InvalidRunError         a cell that cannot be read, or cells that contradict each other
"""

from planner.errors import PlannerError


class RunError(PlannerError):
    """A row that cannot be predicted."""


class UnsupportedRunError(RunError):
    """A run of a kind that no cost model here describes."""


class InvalidRunError(RunError):
    """A cell that cannot be read, or cells that contradict each other."""

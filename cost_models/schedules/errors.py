"""What can be wrong with a schedule.

ScheduleError
├── IllegalScheduleError   the schedule does not exist, or not for these ranks, chunks and micro-batches
├── InvalidTableError      an action table breaks a rule; `rule` names it
└── StageTimesError        stage times have the wrong shape or sign
"""

from typing import Self


class ScheduleError(Exception):
    """Any fault of this package."""


class IllegalScheduleError(ScheduleError):
    """The schedule does not exist, or not for these ranks, chunks and micro-batches."""

    @classmethod
    def of(cls, schedule: str, requires: str, p: int, v: int, m: int, **given: int | None) -> Self:
        """The error of a schedule that needs something else of its ranks p, chunks v and micro-batches m, or of what
        else it is given: its slices or group size, left out where it is None."""
        sizes = {"ranks": p, "chunks": v, "micro-batches": m}
        sizes |= {name.replace("_", " "): value for name, value in given.items() if value is not None}
        return cls(f"{schedule} needs {requires}; got {', '.join(f'{name} {size}' for name, size in sizes.items())}")


class InvalidTableError(ScheduleError):
    """An action table breaks `rule`."""

    def __init__(self, schedule: str, rule: str, detail: str) -> None:
        super().__init__(f"{schedule}: rule {rule!r} is broken: {detail}")
        self.rule = rule


class StageTimesError(ScheduleError):
    """Stage times have the wrong shape or sign."""

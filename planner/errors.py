"""What planning can answer besides a plan.

PlannerError                the input cannot be planned; the message names the field, the value and what is allowed
├── RequestError            a flag or spec field is wrong, or two of them contradict each other
├── DocumentError           a file is not a plan document this version reads, or cannot be read or written
├── LauncherFileError       a launcher's file does not hold a plan that this version reads
├── InexpressibleError      a launcher cannot run the plan: the rules that it breaks
├── InfeasibleError         the search ran and nothing fits: the tightest constraint and by how much
├── LimitReached            a limit stopped the search; carries the best document so far
└── Interrupted             the user stopped the search; carries the best document so far, if there is one
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from planner.document import PlanDocument
    from planner.infeasible import Shortage
    from planner.launchers import Refusal
    from planner.remedies import Remedy


class PlannerError(Exception):
    """The input cannot be planned."""


class RequestError(PlannerError):
    """A flag or spec field is wrong, or two of them contradict each other."""


class DocumentError(PlannerError):
    """A file is not a plan document that this version reads, or it cannot be read or written."""


class LauncherFileError(PlannerError):
    """A launcher's file does not hold a plan that this version reads."""


class InexpressibleError(PlannerError):
    """A launcher cannot run a plan; `refusals` are the rules that it breaks, with the fields that they judge."""

    def __init__(self, launcher: str, refusals: tuple[Refusal, ...]) -> None:
        lines = "".join(f"\n  {each.field}: {each.text}" for each in refusals)
        super().__init__(f"{launcher} cannot express the plan:{lines}")
        self.launcher = launcher
        self.refusals = refusals


class InfeasibleError(PlannerError):
    """Nothing fits. `messages` holds the tightest constraint first; `remedies`, where asked for, what would help.

    `shortage` is what the least demanding layout needs, where there is a legal one.
    """

    def __init__(self, *messages: str, remedies: tuple[Remedy, ...] = (), shortage: Shortage | None = None) -> None:
        super().__init__("\n".join(messages))
        self.messages = messages
        self.remedies = remedies
        self.shortage = shortage


class LimitReached(PlannerError):
    """A limit stopped the search before its certificate closed; `document` is the best plan so far."""

    def __init__(self, document: PlanDocument, message: str = "a limit stopped the search") -> None:
        super().__init__(message)
        self.document = document


class Interrupted(PlannerError):
    """The user stopped the search; `document` is the best plan so far, or None when there was none yet."""

    def __init__(self, document: PlanDocument | None = None, message: str = "interrupted") -> None:
        super().__init__(message)
        self.document = document

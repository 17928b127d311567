"""A plan with anything that this runtime does not honour is refused before it starts."""

from planner.document.honoured import faults
from planner.document.job import Job
from runtime.errors import UnsupportedPlanError

__all__ = ["check"]


def check(job: Job) -> None:
    """Nothing when every field of the job is honoured. Raises UnsupportedPlanError with a line for each that is not."""
    found = faults(job)
    if found:
        raise UnsupportedPlanError("\n".join(found))

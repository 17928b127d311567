"""A job trained by its ranks and by one process, and how far they are apart."""

from functools import reduce

from planner.document.job import Job
from runtime.agreement import agreement, alone
from runtime.precision import DOUBLE, Precision
from runtime.reference import worse
from tests.runtime.pool import Pool


def apart(pool: Pool, job: Job, precision: Precision = DOUBLE) -> tuple[float, float]:
    """The largest relative difference of a loss of some steps, and of a gradient of the first."""
    found = pool.run(agreement, job, alone(job), precision)
    return reduce(worse, (one.loss for one in found)), reduce(worse, (one.gradient for one in found))

"""Golden plans: today's code writes what was reviewed, and what was reviewed makes sense."""

import pytest

from planner.document import dumps, read
from tests.golden.jobs import FOLDER, JOBS, Job
from tests.planner.test_compose import agrees

EACH = pytest.mark.parametrize("job", JOBS, ids=lambda job: job.name)
BY_SPEED = [pytest.param(job, id=job.name, marks=[pytest.mark.slow] if job.slow else []) for job in JOBS]


@pytest.mark.parametrize("job", BY_SPEED)
def test_the_plan_is_the_golden_one(job: Job) -> None:
    """Byte for byte; `python -m tests.golden` writes them anew."""
    assert dumps(job.document()) == job.path.read_text(encoding="utf-8")


@EACH
def test_the_golden_plan_makes_sense(job: Job) -> None:
    """Degrees, layers and memory add up; it is optimal within 0.5 % and fits on every stage."""
    document = read(str(job.path))
    agrees(document)
    assert document.cluster.gpus == job.gpus
    assert job.least_mfu < document.predicted.mfu < 0.7


def test_every_file_belongs_to_a_job() -> None:
    """No golden plan is left over."""
    assert {path.name for path in FOLDER.glob("*.json")} == {job.path.name for job in JOBS}

"""A plan read back from a launcher's files is the plan, whatever it decides."""

from collections.abc import Iterator

import pytest

from planner.document import Configuration, read
from planner.errors import InexpressibleError
from planner.export import EXPORTERS, exported, imported
from tests.golden.jobs import JOBS
from tests.planner.export.configurations import configurations

NAMES = pytest.mark.parametrize("launcher", EXPORTERS)


def check(launcher: str, drawn: Iterator[Configuration]) -> None:
    """Each plan's files give it back: workload, parallelism and stages without predictions, and the job."""
    for configuration in drawn:
        assert imported(exported(configuration, launcher).files) == configuration


@NAMES
def test_some_random_plans_come_back(launcher: str) -> None:
    """A plan of each of a few jobs."""
    check(launcher, configurations(launcher, 3))


@pytest.mark.slow
@NAMES
def test_two_hundred_random_plans_come_back(launcher: str) -> None:
    """Two hundred different legal plans that the launcher can express."""
    check(launcher, configurations(launcher, 200, seed=1))


@pytest.mark.slow
@NAMES
def test_random_plans_differ_in_what_the_launcher_can_express(launcher: str) -> None:
    """Among two hundred plans every field that the launcher can set takes several values."""
    drawn = list(configurations(launcher, 200, seed=1))
    stages = [stage for each in drawn for stage in each.stages]
    assert len({each.parallelism.tp for each in drawn}) > 2
    assert len({each.parallelism.cp for each in drawn}) > 2
    assert len({each.model.name for each in drawn}) > 4
    assert len({stage.recompute.set for stage in stages}) > 1
    assert len({(stage.zero_stage, stage.reshard_after_forward) for stage in stages}) > 1
    pipelines = launcher not in ("accelerate", "trainer", "axolotl")
    assert (len({each.parallelism.pp for each in drawn}) > 3) == pipelines
    assert any(each.parallelism.dp_replicate > 1 for each in drawn) == (launcher not in ("deepspeed", "nanotron"))


@pytest.mark.parametrize("job", [job for job in JOBS if not job.slow], ids=lambda job: job.name)
def test_kept_plans_come_back_from_every_launcher_that_has_them(job) -> None:
    """Plans of the search: exactly the launchers that their documents name export them, and all give them back."""
    document = read(job.path)
    for launcher, answer in document.launchers.items():
        if not answer.expressible:
            with pytest.raises(InexpressibleError):
                exported(document, launcher)
        else:
            assert imported(exported(document, launcher).files) == document.configuration
    assert document.launchers["runtime"].expressible

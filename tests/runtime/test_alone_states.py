"""The optimizer step that is measured alone is that of a run."""

import pytest
import torch

from planner.document.job import Job
from runtime import alone_states
from runtime.constants import Constants
from runtime.optimizer import Optimizer, Settings, adamw_of
from runtime.parameters import local_part
from runtime.precision import precision_of
from runtime.rank import build, materialize
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import small_job, small_model

Stepped = set[tuple[str, torch.dtype]]


def kinds(parameters: list[torch.nn.Parameter]) -> Stepped:
    """How an optimizer holds what it steps, and the type of its numbers."""
    return {(type(parameter).__name__, local_part(parameter).dtype) for parameter in parameters}


def stepped_alone() -> Stepped:
    """What the measured optimizer steps."""
    found: Stepped = set()

    def noted(parameters: list[torch.nn.Parameter], settings: Settings) -> torch.optim.AdamW:
        found.update(kinds(parameters))
        return adamw_of(parameters, settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(alone_states, "adamw_of", noted)
        alone_states.MAKERS["optimizer_step"]((4096,), (16, 16, 16, 2, 32), torch.device("cpu")).run()
    return found


def stepped_in_a_run(job: Job) -> Stepped:
    """What a rank of a job steps."""
    rank = build(job, precision_of(job.recipe), torch.device("cpu"), Constants())
    materialize(rank)
    return kinds([one.parameter for one in Optimizer(rank, Settings())._held])


def test_the_optimizer_alone_steps_what_that_of_a_run_does(ranks: Ranks) -> None:
    """Sharded parameters in fp32, not the weights that products read."""
    in_a_run = ranks(2).run(stepped_in_a_run, small_job(small_model(), pp=2))
    assert ranks(2).run(stepped_alone) == in_a_run == 2 * [{("DTensor", torch.float32)}]

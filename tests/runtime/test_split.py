"""What the cost model takes of torch's pipelines: hops of each rank, and which backwards are split."""

from collections import Counter

import pytest
import torch
from torch.distributed.pipelining.schedules import _add_send_recv

from cost_models import schedules
from cost_models.specs.catalog import load_recipe
from planner.document.job import Job
from planner.passes import ends_of_hops
from runtime.constants import Constants
from runtime.data import Drawn as DrawnTokens
from runtime.data import batch_of
from runtime.initial import Drawn
from runtime.parameters import fill
from runtime.pipeline import actions_of
from runtime.precision import precision_of
from runtime.rank import build, materialize
from runtime.training import backward
from tests.runtime.conftest import Ranks
from tests.runtime.jobs import small_job, small_model

FORWARD, BACKWARD = ("SEND_F", "RECV_F"), ("SEND_B", "RECV_B")


@pytest.mark.parametrize(
    ("name", "pp", "vpp"),
    [("1f1b", 3, 1), ("gpipe", 2, 1), ("interleaved", 2, 4), ("breadth-first", 3, 2), ("zb-h2", 4, 1)]
    + [(name, 3, 2) for name in ("zb-v", "v-half", "v-min", "dualpipe-v")],
)
def test_torch_sends_and_receives_as_often(name: str, pp: int, vpp: int) -> None:
    """Every rank, for each micro-batch, in either direction."""
    table = schedules.actions(name, pp, vpp, 12)
    rank_of = dict(enumerate(table.placement.rank.tolist()))
    lowered = _add_send_recv(actions_of(table), stage_to_rank=rank_of.__getitem__, num_stages=len(rank_of))
    ends = ends_of_hops(name, pp, vpp).sum(axis=1)
    for rank, actions in lowered.items():
        counts = Counter(action.computation_type.name for action in actions)
        for kinds in (FORWARD, BACKWARD):
            assert sum(counts[kind] for kind in kinds) == 12 * ends[rank]


def backwards(job: Job) -> dict[int, list[str]]:
    """The kinds of backward that torch runs in one step on each stage of this rank."""
    rank = build(job, precision_of(job.recipe), torch.device("cpu"), Constants())
    materialize(rank)
    found: dict[int, list[str]] = {}
    for chunk in rank.chunks:
        fill(chunk, Drawn(job.model, 0))
    for stage in rank.schedule._stages:
        run, kinds = stage.backward_maybe_with_nosync, found.setdefault(stage.stage_index, [])

        def noted(kind, *args, run=run, kinds=kinds, **named):  # type: ignore[no-untyped-def]
            kinds.append(kind)
            return run(kind, *args, **named)

        stage.backward_maybe_with_nosync = noted
    backward(rank, batch_of(DrawnTokens(job.model.vocab, job.workload.seq_len, 0), job, rank.groups.data_rank, 0))
    return found


@pytest.mark.parametrize("schedule", ["zb-h1", "zb-v"])
def test_torch_splits_no_backward_of_the_first_stage(schedule: str, ranks: Ranks) -> None:
    """All of it runs at once there, as recipes of torch's pipelines say; elsewhere some are split."""
    job = small_job(small_model(), pp=2, schedule=schedule, micro_batches=4)
    stages = {stage: kinds for found in ranks(2).run(backwards, job) for stage, kinds in found.items()}
    assert set(stages.pop(0)) == {"full"}
    assert stages
    assert all({"input", "weight"} <= set(kinds) for kinds in stages.values())
    assert not load_recipe("runtime-cpu").splits_first_stage

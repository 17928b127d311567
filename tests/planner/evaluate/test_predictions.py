"""Costs of many runs at once."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models.schedules import V_SHAPED
from planner.evaluate import predictions
from planner.evaluate.predictions import costs_of
from planner.evaluate.runs import read_run
from planner.fixed import FixedStage, fixed_candidate
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import SCHEDULES
from tests.planner.evaluate.rows import GPT, LLAMA, MIXTRAL

ROWS = (
    LLAMA,
    {**LLAMA, "model": "llama3-70b", "tp": "4", "vpp": "2"},
    {**LLAMA, "seq_len": "4096", "recompute": "full"},
    GPT,
    {**GPT, "gpu": "H100", "recompute": "selective"},
    MIXTRAL,
)


def test_a_batch_costs_what_its_runs_cost_alone():
    """Runs that share expressions are costed together without a trace of each other."""
    runs = [read_run(row) for row in ROWS]
    for run, together in zip(runs, costs_of(runs), strict=True):
        alone = costs_of([run])[0]
        assert together.step_time_s == pytest.approx(alone.step_time_s, rel=1e-12)
        assert together.device_bytes == pytest.approx(alone.device_bytes, rel=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1", *V_SHAPED])
def test_a_run_costs_what_the_planner_says(schedule):
    """The same layout costed as a plan takes the same step and the same bytes, whichever way its chunks lie."""
    run = read_run({**LLAMA, "zero_or_fsdp": "1", "schedule": schedule})
    assert run.schedule == schedule
    request = PlanRequest(
        model=run.model,
        cluster=run.cluster,
        workload=run.workload,
        profile=run.profile,
        recipe=run.recipe,
        capacity_bytes=80e9,
    )
    layout = {**run.layout, "schedule": SCHEDULES.index(run.schedule)}
    candidate = fixed_candidate(CostModel(request), layout, [FixedStage(8, zero=1)] * 4)
    costs = costs_of([run])[0]
    assert costs.step_time_s == pytest.approx(candidate.objective_s, rel=1e-9)
    assert costs.device_bytes == pytest.approx(candidate.pipeline.options["device_bytes"].max(), rel=1e-12)


@pytest.mark.parametrize("schedule", ["1f1b", "interleaved", "zb-h1", "zb-v", "v-min"])
def test_a_long_schedule_is_carried_on(schedule, monkeypatch):
    """The steady state of a shorter replay, carried on, is the whole replay."""
    chunks = {"vpp": "2"} if schedule == "interleaved" else {"schedule": schedule}
    run = read_run({**LLAMA, **chunks, "global_batch_seqs": str(8 * 4 * 40)})
    short = costs_of([run])[0].step_time_s
    monkeypatch.setattr(predictions, "LONG", 10**6)
    assert short == pytest.approx(costs_of([run])[0].step_time_s, rel=1e-4)


def test_recompute_takes_time_and_frees_memory():
    """More recomputed layers: a longer step, a lower peak; a share of them lies between."""
    runs = [read_run({**LLAMA, "recompute": text}) for text in ("none", "full")]
    half = replace(runs[1], recompute=replace(runs[1].recompute, share=0.5))
    none, some, full = costs_of([runs[0], half, runs[1]])
    assert none.step_time_s < some.step_time_s < full.step_time_s
    assert none.device_bytes > some.device_bytes > full.device_bytes


def test_groups_may_be_split():
    """A stage that ends in the middle of a repeating group costs what its layers cost."""
    row = {"model": "gpt-oss-20b", "gpu": "H100", "n_gpus": "8", "pp": "2", "ep": "4", "global_batch_seqs": "16"}
    whole, split = (costs_of([read_run({**row, "stage_layers": text})])[0] for text in ("12,12", "11,13"))
    assert np.isfinite(split.step_time_s)
    assert split.step_time_s != whole.step_time_s


@pytest.mark.parametrize("schedule", ["zb-2p", "zb-v"])
def test_ranks_that_do_not_wait_begin_steps_one_after_the_other(schedule):
    """Where the optimizer is validated afterwards a step takes what its busiest rank does, not from first to last."""
    rows = [{**LLAMA, "schedule": schedule, "framework": name} for name in ("Megatron-LM + zero bubble", "Megatron-LM")]
    runs = [read_run(row) for row in rows]
    assert [run.synchronized for run in runs] == [False, True]
    runs[0] = replace(runs[0], recipe=runs[1].recipe)
    unsynchronized, synchronized = (cost.step_time_s for cost in costs_of(runs))
    # Placed as a V, rank 0 begins and ends the step: it gains nothing.
    assert unsynchronized <= synchronized
    assert unsynchronized < synchronized or schedule == "zb-v"


def test_runs_of_the_zero_bubble_authors_wait_for_sends_in_megatrons_schedules():
    """Their 1F1B and interleaved 1F1B are longer than where sends overlap; interleaving sends more and loses more."""
    losses = []
    for vpp in ("1", "2"):
        run = read_run({**LLAMA, "vpp": vpp, "framework": "Megatron-LM + zero bubble"})
        assert (run.synchronized, run.overlaps_sends) == (True, False)
        waiting, sending = (cost.step_time_s for cost in costs_of([run, replace(run, overlaps_sends=True)]))
        losses.append(waiting - sending)
    assert 0 < losses[0] < losses[1]


def test_gathered_pipelines_accumulate_whole_gradients():
    """Where weights stay gathered in a pipeline a stage holds its gradients whole, beyond its shard of them."""
    run = read_run({**LLAMA, "framework": "torchtitan", "zero_or_fsdp": "3"})
    resharding = replace(run, recipe=run.recipe.replaced(reshards_in_pipeline=True))
    kept, freed = (one.stages for one in costs_of([run, resharding]))
    beyond = kept["buffer_bytes"] - freed["buffer_bytes"]
    assert run.layout["dp_shard"] == 8
    # Gathered bf16 weights are all that a stage holds, at two bytes a parameter.
    assert kept["gathered_parameters"] * 2 * (1 - 1 / 8) == pytest.approx(beyond)
    alone = {**LLAMA, "framework": "torchtitan", "zero_or_fsdp": "3", "pp": "1"}
    assert costs_of([read_run(alone)])[0].stages["buffer_bytes"].max() == 0

"""Inverse questions: the answer fits, the next value does not, and every value in between was not taken on trust."""

from typing import Any

import pytest

from planner.capacity import Capacity, family_of, largest_model, max_global_batch, max_seq_len, min_gpus
from planner.errors import InfeasibleError, RequestError
from planner.feasibility import least_states_bytes, trial
from planner.request import PlanRequest, build_request
from planner.search import plan
from tests.oracles.spaces import Space


def job(**changes: Any) -> PlanRequest:
    """8B on one node of H100."""
    return build_request(
        **{"model": "llama3-8b", "gpus": 8, "mem": "80GB", "seq_len": "4k", "global_batch": 16} | changes
    )


def verdicts(found: Capacity) -> dict[int | str, bool]:
    """What fits, by value."""
    return {each.value: each.fits for each in found.frontier}


def assert_complete(found: Capacity) -> None:
    """What fits has a step and bytes within the memory, what does not has a reason; the answer has a job."""
    for each in found.frontier:
        assert (each.step_time_s is not None) == each.fits
        assert bool(each.why_not) != each.fits
        assert each.device_bytes is not None
    assert (found.request is None) == (found.answer is None)


def fits(request: PlanRequest) -> bool:
    """Whether the planner's own search finds a plan that offloads nothing."""
    try:
        document = plan(request)
    except InfeasibleError:
        return False
    return not any(share for stage in document.stages for _, share in stage.offload)


@pytest.mark.parametrize("memory", [0.0, 0.05, 0.3])
@pytest.mark.parametrize("gpus", [1, 2, 3, 4])
def test_a_trial_says_what_the_search_says(memory: float, gpus: int) -> None:
    """On small jobs, with memories of which some are a hair too small: the same verdict, and a plan not faster."""
    request = Space(4, 3, 4, memory).request(0.005)
    request = request.replaced(
        cluster=request.cluster.with_gpus(gpus), capacity_bytes=request.capacity_bytes * (1.0 if memory else 0.9999)
    )
    found = trial(request)
    assert found.fits == fits(request)
    if found.step_time_s is not None:
        assert found.step_time_s >= plan(request).predicted.step_time_s * (1 - 1e-9)


def test_no_plan_has_less_than_its_share_of_the_states() -> None:
    """The bound that refuses a job without a search is under the fullest GPU's states in any plan."""
    request = job()
    causes = plan(request).predicted.peak_memory_bytes.breakdown
    states = causes.weights + causes.gradients + causes.master_weights + causes.moments
    assert least_states_bytes(request) <= states


def test_fewest_gpus() -> None:
    """8B fits on three H100 and not on two; every count up to it was tried."""
    found = min_gpus(job(gpus=1))
    assert_complete(found)
    assert found.answer == 3
    assert verdicts(found) == {1: False, 2: False, 3: True, 4: True}
    assert found.request is not None
    assert found.request.cluster.gpus == 3
    assert plan(found.request).predicted.verdict == "yes"
    assert any("every count up to 3" in note for note in found.notes)


def test_variants_of_the_recipe_count_where_they_are_searched() -> None:
    """Moments of 8 bits bring 8B from three H100 to two, which the planner's own search confirms."""
    asked = job(gpus=1, search="optimizer")
    found = min_gpus(asked, most=4)
    assert_complete(found)
    assert verdicts(found) == {1: False, 2: True}
    assert found.request is not None
    assert fits(found.request)
    assert not fits(found.request.replaced(search=()))


def test_fewest_gpus_where_none_is_enough() -> None:
    """With a limit below what is needed there is no answer, and the reasons are told."""
    found = min_gpus(job(gpus=1), most=2)
    assert_complete(found)
    assert found.answer is None
    assert verdicts(found) == {1: False, 2: False}


@pytest.mark.slow
def test_a_count_inside_one_domain_is_not_missed() -> None:
    """Six GPUs run TP 6 inside a domain of eight, nine or more do not: small counts are tried one by one."""
    changes = ("model.heads=6", "model.kv_heads=6", "model.hidden=768", "model.ffn=3072", "model.head_dim=128")
    request = job(gpus=1, global_batch=1, seq_len="16380", overrides=(*changes, "model.max_seq_len=65536"))
    needed = {gpus: trial(request.replaced(cluster=request.cluster.with_gpus(gpus))) for gpus in range(1, 9)}
    least = min(found.device_bytes or 0.0 for found in needed.values())
    tight = request.replaced(capacity_bytes=least * 1.0601)
    found = min_gpus(tight, most=16)
    expected = [
        gpus for gpus in range(1, 17) if trial(tight.replaced(cluster=tight.cluster.with_gpus(gpus)), told=False).fits
    ]
    assert found.answer == (expected[0] if expected else None)


def test_the_longest_sequence() -> None:
    """The answer fits and four longer lengths do not; they are multiples of what the degrees divide."""
    found = max_seq_len(job(gpus=2, global_batch=2, overrides=["model.layers=8"]))
    assert_complete(found)
    assert isinstance(found.answer, int)
    assert found.answer % 1024 == 0
    told = verdicts(found)
    assert told[found.answer]
    assert [told[found.answer + 1024 * step] for step in range(1, 5)] == [False] * 4
    assert not any(value > found.answer and fits for value, fits in told.items() if isinstance(value, int))
    assert found.request is not None
    assert found.request.workload.seq_len == found.answer
    assert found.request.workload.global_batch == 2


def test_a_batch_without_end_is_said_to_have_none() -> None:
    """Micro-batches follow each other: the first batch whose plan keeps no more with more of them answers."""
    found = max_global_batch(job())
    assert not found.bounded
    assert "no end" in found.notes[0]
    assert isinstance(found.answer, int)
    longer = job(global_batch=64 * found.answer)
    assert trial(longer, told=False).fits


def test_the_largest_batch_of_a_held_number_of_micro_batches() -> None:
    """With one micro-batch a step memory grows with the batch: the edge is found, in multiples of the GPUs."""
    request = job(gpus=2, overrides=["model.layers=8"]).replaced(fixed={"num_microbatches": 1})
    found = max_global_batch(request)
    assert_complete(found)
    assert found.bounded
    assert isinstance(found.answer, int)
    told = verdicts(found)
    assert told[found.answer]
    assert not told[found.answer + 2]


def test_the_largest_model_of_a_family() -> None:
    """The largest that fits, tried from the largest down."""
    found = largest_model(job(), "Llama-3.1")
    assert_complete(found)
    names = [each.value for each in found.frontier]
    assert names == [model.name for model in family_of("llama3.1")][: len(names)]
    assert [each.fits for each in found.frontier] == [False] * (len(names) - 1) + [True]
    assert found.answer == names[-1] == "llama3.1-8b"
    with pytest.raises(RequestError, match="must be how names of the catalog begin, such as llama3, got 'nothing'"):
        largest_model(job(), "nothing")


@pytest.mark.slow
def test_how_many_a100_deepseek_v3_needs() -> None:
    """Not 32 nor 64: states alone need 168 of 72 GB, published layouts use 256."""
    found = min_gpus(build_request("deepseek-v3", 256, gpu="a100-80-sxm", seq_len="4k", global_batch=512), most=256)
    assert isinstance(found.answer, int)
    assert 150 <= found.answer <= 256
    assert not verdicts(found)[64]

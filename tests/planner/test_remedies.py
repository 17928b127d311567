"""Advice is true: whoever makes a change that was suggested is told the same time and memory again."""

from typing import Any

import pytest

from planner.changes import hardware_changes
from planner.feasibility import trial
from planner.proposal import of_document, of_text
from planner.remedies import MOST, Remedy, of_infeasible, of_plan, of_proposal, relief
from planner.request import build_request
from planner.search import plan
from tests.planner.applied import again, with_flags

H100 = {"gpu": "h100-sxm"}
# Configurations that do not fit, or barely do, of several kinds; on presets, sizes and flags of several kinds.
CONFIGURATIONS: dict[str, tuple[dict[str, Any], str]] = {
    "one node": (
        {"model": "llama3-8b", "gpus": 8, "mem": "80GB", "seq_len": "4k", "global_batch": 64},
        "tp=2,micro_batch_size=8",
    ),
    "pipeline": (
        {"model": "llama3-70b", "nodes": 8, "cluster": "dgx-h100", "seq_len": "8k", "global_batch": 128},
        "tp=4,pp=4,vpp=5,recompute=norm",
    ),
    "experts": (
        {"model": "qwen3-30b-a3b", "gpus": 16, **H100, "seq_len": "4k", "global_batch": 256, "target": "megatron"},
        "tp=2,ep=8,micro_batch_size=2",
    ),
    "small cards": (
        {"model": "llama3.2-3b", "gpus": 12, "gpu": "l4", "gpus_per_node": 4, "seq_len": "2k", "global_batch": 24},
        "pp=3,dp=4,micro_batch_size=2",
    ),
    "leading layers": (
        {"model": "deepseek-v2-lite", "gpus": 8, **H100, "global_batch": 64, "recipe": "torchtitan"},
        "pp=2,ep=4,zero_stage=3,micro_batch_size=2",
    ),
}
# Jobs of which nothing fits.
JOBS: dict[str, dict[str, Any]] = {
    "a node short": {"model": "llama3-70b", "gpus": 16, "mem": "80GB", "seq_len": "4k", "global_batch": 32},
    "a little too long": {"model": "llama3-8b", "gpus": 2, **H100, "seq_len": "8k", "global_batch": 8},
}

# Jobs that have a plan, and kinds of change that make it faster or cheaper.
PLANNED: dict[str, tuple[dict[str, Any], set[str]]] = {
    "dense": (
        {"model": "llama3-8b", "gpus": 8, "mem": "80GB", "seq_len": "4k", "global_batch": 64},
        {"precision", "GPU"},
    ),
    "experts for a launcher": (
        {"model": "deepseek-v2-lite", "gpus": 8, **H100, "seq_len": "4k", "global_batch": 64, "target": "torchtitan"},
        {"precision"},
    ),
}


def assert_ordered(remedies: tuple[Remedy, ...]) -> None:
    """At most five of different kinds, by cost, of which hardware is the last."""
    assert 1 <= len(remedies) <= MOST
    assert len({each.kind for each in remedies}) == len(remedies)
    assert [each.cost for each in remedies] == sorted(each.cost for each in remedies)
    hardware = [each.needs_hardware for each in remedies]
    assert hardware == sorted(hardware)


@pytest.mark.parametrize(
    "name",
    [name if name != "leading layers" else pytest.param(name, marks=pytest.mark.slow) for name in CONFIGURATIONS],
)
def test_changes_of_a_configuration_keep_their_promise(name: str) -> None:
    """Each, made as its flags and its configuration say, fits and takes what was promised; and it is one change."""
    job, text = CONFIGURATIONS[name]
    before = of_text(text, build_request(**job))
    assert not before.illegal
    assert not before.figures.fits
    remedies = of_proposal(before)
    assert_ordered(remedies)
    for each in remedies:
        after = again(each, job, text)
        assert after.figures.fits
        assert not after.illegal
        assert not after.inexpressible or before.inexpressible
        assert after.figures.step_time_s == pytest.approx(each.step_time_s, rel=0.01)
        assert after.figures.device_bytes == pytest.approx(each.device_bytes, rel=0.01)
        assert bool(each.flags) != (each.setting != before.text)


@pytest.mark.slow
@pytest.mark.parametrize("name", JOBS)
def test_changes_of_a_job_keep_their_promise(name: str) -> None:
    """Nothing fits before; planned again with the flags of any change, the best plan takes what was promised."""
    job = JOBS[name]
    request = build_request(**job)
    assert not trial(request).fits
    remedies = of_infeasible(request)
    assert_ordered(remedies)
    for each in remedies:
        _keeps(each, job)


def _keeps(remedy: Remedy, job: dict[str, Any]) -> None:
    predicted = plan(with_flags(remedy, job)).predicted
    assert predicted.verdict == "yes"
    assert predicted.step_time_s == pytest.approx(remedy.step_time_s, rel=0.01)
    assert predicted.peak_memory_bytes.device == pytest.approx(remedy.device_bytes, rel=0.01)


@pytest.mark.slow
@pytest.mark.parametrize("name", PLANNED)
def test_changes_of_a_plan_make_it_faster_or_cheaper_or_leave_memory_free(name: str) -> None:
    """Each keeps its promise; those for speed buy some, those for memory need no hardware."""
    job, kinds = PLANNED[name]
    request = build_request(**job)
    document = plan(request)
    step_s, memory = document.predicted.step_time_s, document.predicted.peak_memory_bytes.device
    own = step_s * request.cluster.gpus / request.workload.tokens
    faster = of_plan(document, request)
    assert_ordered(faster)
    for each in faster:
        assert each.gpu_seconds_per_token < own or (each.needs_hardware and each.step_time_s < step_s)
        _keeps(each, job)
    assert kinds <= {each.kind for each in faster}
    freed = relief(document, request)
    assert_ordered(freed)
    for each in freed:
        assert not each.needs_hardware
        assert each.device_bytes < 0.97 * memory
        after = again(each, job, of_document(document, request).text)
        assert after.figures.device_bytes == pytest.approx(each.device_bytes, rel=0.01)
        assert after.figures.step_time_s == pytest.approx(each.step_time_s, rel=0.01)


def test_gpus_that_are_suggested_have_the_precision() -> None:
    """For fp8 on L4 no A100 is named: it has more memory, and no such products."""
    job: dict[str, Any] = {"model": "llama3-8b", "gpus": 8, "gpu": "l4", "seq_len": "4k", "global_batch": 64}
    assert {"a100-40-pcie", "l40s"} <= _cards(job)
    assert _cards(job) - _cards(job | {"precision": "fp8"}) == {"a100-40-pcie"}


def _cards(job: dict[str, Any]) -> set[str]:
    changes = hardware_changes(build_request(**job), host=False)
    return {each.flags["--gpu"] for each in changes if each.kind == "GPU"}


def test_nothing_is_suggested_where_nothing_helps() -> None:
    """405B on one card of 24 GB: no single change of the job or of the configuration fits."""
    job: dict[str, Any] = {"model": "llama3.1-405b", "gpus": 1, "gpu": "l4", "seq_len": "4k", "global_batch": 1}
    request = build_request(**job)
    assert of_infeasible(request) == ()
    assert of_proposal(of_text("recompute=full", request)) == ()

"""Why nothing fits, told so that something can be done about it."""

import re

import pytest

from planner import search
from planner.errors import InfeasibleError
from planner.request import build_request
from tests.oracles.spaces import Space


def messages(**changes: object) -> tuple[str, ...]:
    """What a job that cannot be planned is told."""
    request = build_request("llama3-405b", 8, "80GB").replaced(**changes)
    with pytest.raises(InfeasibleError) as caught:
        search.plan(request)
    return caught.value.messages


@pytest.mark.slow
def test_a_model_too_large_names_stage_need_and_excess() -> None:
    """Bytes needed less bytes usable is what is too much; the layout, the causes and what was not tried are told."""
    tightest, layout, host, untried, ask = messages()
    found = re.search(r"needs ([\d.]+) GiB on a GPU of stage \d+ .*usable are ([\d.]+) GiB: ([\d.]+) GiB too", tightest)
    assert found is not None
    needed, usable, over = (float(text) for text in found.groups())
    assert needed - usable == pytest.approx(over, abs=0.6)
    assert usable == pytest.approx(79.1, abs=0.05)
    assert needed > 900
    assert re.search(r"tp \d+, pp \d+, vpp 1, dp 1, micro_batch_size 1, ZeRO-0", layout)
    assert "every layer recomputed" in layout
    assert re.search(r"moments [\d.]+ GiB, master weights [\d.]+ GiB", layout)
    assert re.search(r"with [\d.]+ GiB of host memory a GPU, its equal share of a node, offload does not", host)
    assert "offload" in untried
    assert "--min-gpus" in ask
    assert "`plan check`" in ask


def test_a_little_too_much_is_told_in_small_units() -> None:
    """A capacity just below what is needed gives a small excess of the same layout, on hosts without memory."""
    request = Space(2, 3, 4, 0.0).request()
    request = request.replaced(cluster=request.cluster.replaced(host_memory_bytes=1))
    with pytest.raises(InfeasibleError, match=r"[\d.]+ [KM]iB too much"):
        search.plan(request.replaced(capacity_bytes=request.capacity_bytes * 0.9999))


@pytest.mark.parametrize(
    ("gpus", "batch", "schedule", "reason"),
    [
        (1, 4, "interleaved", r"pp 2, vpp 2.*at most gpus \(1\), got 2"),
        (1, 4, "gpipe", r"pp 2, vpp 1.*at most gpus \(1\), got 2"),
        (2, 3, "interleaved", r"multiple of pp \(2\) for interleaved 1F1B, got 3"),
        (2, 3, "dualpipe-v", r"smallest dualpipe-v pipeline .* micro-batches >= 2 \* ranks; got pp 2, vpp 2"),
        (1, 4, "zb-h1", r"pp 2, vpp 1.*at most gpus \(1\), got 2"),
    ],
)
def test_an_impossible_schedule_gives_its_reason(gpus: int, batch: int, schedule: str, reason: str) -> None:
    """The smallest pipeline of the schedule and the rule that it breaks."""
    with pytest.raises(InfeasibleError) as caught:
        search.plan(Space(2, 3, 4, 0.5).request().replaced(schedules=(schedule,), **_job(gpus, batch)))
    assert f"legal for the {schedule} schedule" in caught.value.messages[0]
    assert re.search(reason, caught.value.messages[1])


def test_a_model_of_one_layer_has_no_interleaving() -> None:
    """Too few layers for two chunks on each of two ranks, with the ends of the model counted."""
    space = Space(2, 1, 2, 0.5)
    with pytest.raises(InfeasibleError, match=r"\(1 layers\), got pp 2, vpp 2"):
        search.plan(space.request().replaced(schedules=("interleaved",)))


def _job(gpus: int, batch: int) -> dict[str, object]:
    request = Space(2, 3, 4, 0.5).request()
    return {
        "cluster": request.cluster.with_gpus(gpus),
        "workload": request.workload.replaced(global_batch=batch),
    }


def test_a_target_that_knows_no_such_job_says_why() -> None:
    """torchtitan refuses sequences beyond the model's context, and pipelines of a schedule that it does not run."""
    with pytest.raises(InfeasibleError) as long:
        search.plan(build_request("llama3-8b", 8, "80GB", seq_len="16k", target="torchtitan"))
    assert long.value.messages == (
        "torchtitan can express no plan of this job",
        "seq_len must be at most max_seq_len (8192), got 16384 (torchtitan-has-rotary-positions-for-sequence)",
    )
    with pytest.raises(InfeasibleError, match="gpipe schedule and can be expressed by megatron"):
        search.plan(build_request("llama3-8b", 8, "80GB", schedule="gpipe", target="megatron"))

"""From names and sizes to specs: defaults, readings, contradictions."""

import pytest

from cost_models.specs.errors import SpecError
from planner.errors import RequestError
from planner.request import PlanRequest, build_request


def test_the_shortest_command_is_complete() -> None:
    """Model, GPUs and memory are enough; every default that decides the plan is told."""
    request = build_request("llama3-70b", 256, "80GB")
    assert (request.cluster.gpus, request.cluster.gpu.name) == (256, "h100-sxm")
    assert (request.workload.seq_len, request.workload.global_batch) == (8192, 512)
    assert request.capacity_bytes == request.cluster.gpu.usable_memory_bytes
    assert request.gap == 0.005
    told = " ".join(request.assumptions)
    for word in ("80GB", "h100-sxm", "32 dgx-h100 nodes of 8", "8,192 tokens", "512 sequences", "megatron"):
        assert word in told


def test_what_is_given_is_not_told_as_assumed() -> None:
    """A command that names everything leaves only the reading of the memory."""
    request = build_request(
        "llama3-8b", "16", cluster="dgx-a100", seq_len="4k", global_batch="64", recipe="megatron", mem="40GiB"
    )
    assert [sentence[:25] for sentence in request.assumptions] == ["Memory of one GPU: 40GiB "]
    assert (request.cluster.gpus, request.workload.seq_len, request.workload.global_batch) == (16, 4096, 64)
    assert request.capacity_bytes == 40 * 2**30


def test_equal_commands_give_equal_requests() -> None:
    """Numbers given as text or as int, and a GPU by alias or by name, mean the same."""
    by_text = build_request("llama3-8b", "16", gpu="h100", global_batch="64")
    by_number = build_request("llama3-8b", 16, gpu="h100-sxm", global_batch=64)
    assert by_text == by_number


@pytest.mark.parametrize(
    ("mem", "gpu"),
    [("40GB", "a100-40-sxm"), ("80GB", "h100-sxm"), ("141GB", "h200"), ("192GB", "b200"), ("24GB", "l4")],
)
def test_a_label_stands_for_a_card(mem: str, gpu: str) -> None:
    """Memory alone names the card that is sold with it, and its usable memory holds."""
    request = build_request("llama3-8b", 8, mem)
    assert request.cluster.gpu.name == gpu
    assert request.capacity_bytes == request.cluster.gpu.usable_memory_bytes


def test_memory_of_no_card_is_literal_on_the_nearest() -> None:
    """Any size plans, and the reading is told."""
    request = build_request("llama3-8b", 8, "75GiB")
    assert request.cluster.gpu.name == "h100-sxm"
    assert request.capacity_bytes == 75 * 2**30
    assert any("75GiB alone stands for no GPU" in sentence for sentence in request.assumptions)


def test_nodes_stand_for_gpus() -> None:
    """--nodes counts full nodes of the cluster, or of the size given."""
    assert build_request("llama3-8b", nodes=4, gpu="h100").cluster.gpus == 32
    halved = build_request("llama3-8b", nodes="4", gpus_per_node="4", gpu="h100").cluster
    assert (halved.gpus, halved.gpus_per_node, halved.tiers[0].domain_gpus) == (16, 4, 4)
    assert build_request("llama3-8b", 32, nodes=4, gpu="h100").cluster.nodes == 4


def test_tokens_of_a_step_are_rounded_to_sequences() -> None:
    """The rounding is told when there is one."""
    exact = build_request("llama3-8b", 8, "80GB", global_batch_tokens="1M", seq_len="8k")
    assert exact.workload.global_batch == 128
    assert not any("rounded" in sentence for sentence in exact.assumptions)
    rounded = build_request("llama3-8b", 8, "80GB", global_batch_tokens="1000k", seq_len="3000")
    assert rounded.workload.global_batch == round(1000 * 1024 / 3000)
    assert any("is rounded to 341 sequences" in sentence for sentence in rounded.assumptions)


def test_the_default_batch_keeps_its_tokens_at_any_length() -> None:
    """A longer sequence means fewer of them, at least one."""
    assert build_request("llama3-8b", 8, "80GB", seq_len="4k").workload.tokens == 4 * 2**20
    assert build_request("llama3-8b", 8, "80GB", seq_len="128k").workload.global_batch == 32
    assert build_request("llama3-8b", 8, "80GB", seq_len="16M").workload.global_batch == 1


WRONG = [
    ({"gpus": 0}, "--gpus must be a whole number from 1 to 10000000, got 0"),
    ({"gpus": -3}, "--gpus must be a whole number"),
    ({"gpus": 10**15}, "--gpus must be a whole number"),
    ({"gpus": "eight"}, "--gpus must be a whole number from 1 to 10000000, got 'eight'"),
    ({"gpus": None}, "give --gpus or --nodes"),
    ({"mem": None}, "give --gpu, --cluster or --mem"),
    ({"mem": "80Gb"}, "which is bits; did you mean '80GB'?"),
    ({"mem": "80GB", "gpu": "h100", "cluster": "dgx-a100"}, "--gpu h100 contradicts --cluster dgx-a100"),
    ({"model": "llama3-70"}, "did you mean 'llama3-70b'"),
    ({"gpu": "h10"}, "unknown gpu 'h10'"),
    ({"cluster": "dgx-h10"}, "did you mean 'dgx-h100'"),
    ({"recipe": "megatrn"}, "did you mean 'megatron'"),
    ({"nodes": 2}, "--gpus 8 contradicts --nodes 2, which are 16 GPUs at 8 a node"),
    ({"seq_len": "0"}, "--seq-len must be a whole number >= 1"),
    ({"global_batch": "1.5"}, "--global-batch must be a whole number"),
    ({"global_batch": 8, "global_batch_tokens": "1M"}, "say the same thing; give one of them"),
    ({"global_batch_tokens": "1k"}, "--global-batch-tokens must be >= the sequence length 8192, got 1k"),
    ({"schedule": "1f1"}, "--schedule must be one or several of 1f1b, interleaved, "),
    ({"schedule": "gpipe,1f1"}, "got '1f1'; did you mean '1f1b'?"),
    ({"gap": 1.0}, "request.gap must be < 1, got 1.0"),
    ({"gap": float("nan")}, "request.gap must be"),
    ({"time_limit_s": 0.0}, "request.time_limit_s must be > 0, got 0.0"),
    ({"top_k": 0}, "request.top_k must be >= 1, got 0"),
    ({"overrides": ["model.layers"]}, "--set must be spec.field=value such as model.layers=4, got 'model.layers'"),
    ({"overrides": ["layers=4"]}, "--set must be spec.field=value"),
    ({"overrides": ["model..x=4"]}, "--set must be spec.field=value"),
    ({"overrides": ["modle.layers=4"]}, "did you mean 'model'?"),
    ({"overrides": ["model.layer=4"]}, "unknown field 'layer' in model; did you mean 'layers'?"),
    ({"overrides": ["model.layers=four"]}, "model.layers must be a whole number, got 'four'"),
    ({"overrides": ["model.layers.deep=4"]}, "no 'deep' there, allowed is nothing: it is a single value"),
    ({"overrides": ["cluster.tiers.7.latency_s=1"]}, "no '7' there, allowed is one of 0, 1"),
    ({"mem": None, "gpu": "a100", "precision": "fp8"}, "workload.precision must be bf16 on a100-80-sxm, got fp8"),
    ({"mem": "40GB", "overrides": ["workload.precision=fp8"]}, "workload.precision must be bf16 on a100-40-sxm, got"),
    ({"overrides": ["model.kv_heads=7"]}, "kv_heads must divide heads"),
]


@pytest.mark.parametrize(("flags", "message"), WRONG, ids=[str(flags) for flags, _ in WRONG])
def test_wrong_flags_are_explained(flags: dict[str, object], message: str) -> None:
    """One line names the flag or field, the value and what is allowed."""
    with pytest.raises((RequestError, SpecError)) as caught:
        build_request(**{"model": "llama3-70b", "gpus": 8, "mem": "80GB"} | flags)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_set_reaches_every_spec() -> None:
    """Fields of all five specs, nested ones and entries of lists, can be set; later ones win; each is told."""
    request = build_request(
        "llama3-70b",
        8,
        "80GB",
        overrides=[
            "model.layers=8",
            "model.layers=4",
            "cluster.gpu.peak_flops.bf16=1e15",
            "cluster.tiers.1.latency_s=2e-6",
            "workload.precision=fp8",
            "recipe.flash_attention=false",
            "profile.elementwise.launch_s=0",
        ],
    )
    assert request.model.layers == 4
    assert request.cluster.gpu.peak_flops["bf16"] == 1e15
    assert request.cluster.tiers[1].latency_s == 2e-6
    assert request.workload.precision == "fp8"
    assert not request.recipe.flash_attention
    assert request.profile.elementwise.launch_s == 0
    assert "Set by hand: model.layers=4." in request.assumptions


def test_set_comes_before_what_depends_on_it() -> None:
    """A context or a node size that was set changes the defaults made from it."""
    request = build_request("llama3-70b", nodes=2, gpu="h100", overrides=["model.max_seq_len=2048"])
    assert request.workload.seq_len == 2048
    usable = build_request("llama3-70b", 8, gpu="h100", overrides=["cluster.gpu.usable_memory_bytes=70000000000"])
    assert usable.capacity_bytes == 70e9


def test_a_request_is_frozen_and_checked() -> None:
    """No unknown field, no change afterwards."""
    request = build_request("llama3-8b", 8, "80GB")
    with pytest.raises(SpecError, match="unknown field 'gpa' in request; did you mean 'gap'"):
        PlanRequest(**dict(request), gpa=0.1)
    with pytest.raises(TypeError, match="frozen"):
        request.gap = 0.1


def test_constants_of_another_gpu_are_told() -> None:
    """A GPU without measurements of its own is planned with scaled constants, and the assumptions name whose."""
    told = build_request("llama3-8b", 8, gpu="h800").assumptions
    assert any("No constants are measured on h800-sxm: those of h100-sxm" in sentence for sentence in told)
    assert not any("No constants are measured" in s for s in build_request("llama3-8b", 8, gpu="h100-sxm").assumptions)


def test_several_schedules_can_be_asked_for() -> None:
    """One name, several with commas between, or none for the usual ones; a name given twice counts once."""
    job = {"model": "llama3-8b", "gpus": 8, "mem": "80GB"}
    assert build_request(**job).schedules == ("1f1b", "interleaved", "gpipe")
    assert build_request(**job, schedule="zb-v").schedules == ("zb-v",)
    assert build_request(**job, schedule="v-half, 1f1b,flexible,1f1b").schedules == ("v-half", "1f1b", "flexible")

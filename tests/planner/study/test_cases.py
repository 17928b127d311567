"""What users asked of clusters and networks: the what-if and topology cases of user_cases.json, answered right."""

import json
from pathlib import Path
from typing import Any

import pytest

from planner.incumbent import Search
from planner.predict import CostModel
from planner.proposal import of_text
from planner.request import build_request
from planner.search import searched
from planner.study.result import ScenarioResult
from planner.study.run import what_if
from planner.study.sweep import axes_of

CASES: dict[str, Any] = json.loads((Path(__file__).parents[1] / "user_cases.json").read_text(encoding="utf-8"))["cases"]
ANSWERED = {
    "wi-slime-235b-32gpu",
    "wi-72b-48x16gb",
    "wi-yarn-context",
    "topo-zero3-multinode-72b",
    "topo-zero3-network-math",
    "topo-nvl72-segments",
    "topo-nvlink-vs-pcie-ddp",
    "topo-ep-tp-folding-deepspeed",
    "topo-olmo-4gpu-node",
}
ELSEWHERE = {
    "wi-dsv3-how-many-a100": "an inverse question: tests/planner/test_capacity.py",
    "topo-mixed-gpus": "the GPU is not in the catalog; groups of GPUs: tests/planner/test_mixed.py",
}


def step_s(text: str, **job: Any) -> float:
    """Seconds of a step of a configuration as it stands."""
    figures = of_text(text, build_request(**job)).figures
    assert figures is not None
    return figures.step_time_s


def studied(job: dict[str, Any], *sweeps: str) -> dict[str, ScenarioResult]:
    """Scenarios by the value of the first sweep."""
    axes = axes_of(sweeps)
    return {each.inputs[axes[0].key]: each for each in what_if(job, axes).study.scenarios}


def fits_on_gpus(**job: Any) -> bool:
    """Whether any plan of a job fits in the memory of its GPUs alone."""
    return searched(Search(CostModel(build_request(**job)))).best is not None


def offloads(scenario: ScenarioResult) -> bool:
    """Whether a scenario needs the host's memory: nothing fits, or what fits keeps something there."""
    return scenario.plan is None or scenario.plan.offload > 0


def test_every_case_is_answered_somewhere() -> None:
    """Here, or where and why not."""
    kinds = ("6-what-if", "7-topology")
    assert {name for name, case in CASES.items() if case["kind"] in kinds} == ANSWERED | set(ELSEWHERE)


def test_sharded_parameters_need_a_fast_network() -> None:
    """ZeRO-3 on nodes of eight A100: 100 Gb/s a node is not enough, 400 acceptable, 800 as good as twice that."""
    job = {"model": "llama2-13b", "gpus": 64, "gpu": "a100-80-sxm", "seq_len": "2k", "global_batch": 64}
    seconds = {}
    for gigabits in (100, 400, 800, 1600):
        share = gigabits * 1e9 / 8 / 8  # bytes a second of one of eight GPUs
        links = (f"cluster.tiers.1.link_bandwidth_bytes_per_s={share}", "cluster.tiers.1.links_per_gpu=1")
        text = "zero_stage=3,recompute=full,micro_batch_size=1"
        seconds[gigabits] = step_s(text, **job, recipe="deepspeed", overrides=links)
    assert seconds[100] > 3 * seconds[400]
    assert seconds[400] < 1.6 * seconds[1600]
    assert seconds[800] < 1.1 * seconds[1600]


def test_experts_in_the_node_beat_tensor_parallelism_and_sharding() -> None:
    """A model of 35B with experts, cut to 20 layers, on two nodes: EP 8, then TP 2 with EP 8, then ZeRO-3."""
    job = {"model": "qwen3-30b-a3b", "gpus": 16, "gpu": "h100-sxm", "seq_len": "1k", "global_batch": 64}
    job |= {"recipe": "deepspeed", "overrides": ("model.layers=20",)}
    layouts = (
        "zero_stage=1,ep=8,micro_batch_size=1",
        "zero_stage=1,tp=2,ep=8,micro_batch_size=2",
        "zero_stage=3,micro_batch_size=1",
    )
    experts, both, sharded = (step_s(layout, **job) for layout in layouts)
    assert experts < both < sharded
    assert sharded > 2 * experts


def test_small_nodes_on_one_port_each_lose_a_quarter() -> None:
    """1B, sharded flat over two nodes of four A100 with a port of 100 Gb/s each, keeps three quarters of its speed.

    Model, batch and network are not told. HSDP is faster, as told, where gradients wait for the last micro-batch: else
    reducing them between nodes, in fp32, takes as many bytes as flat gradients and two gathers of bf16 weights.
    """
    job = {"model": "llama3.2-1b", "cluster": "a100-4gpu", "seq_len": "2k", "recipe": "torchtitan"}
    port = ("cluster.tiers.1.link_bandwidth_bytes_per_s=3.125e9", "cluster.tiers.1.links_per_gpu=1")
    one = step_s("zero_stage=3,micro_batch_size=8", gpus=4, global_batch=128, **job)

    def efficiency(text: str, *changes: str) -> float:
        shared = {**job, "gpus": 8, "global_batch": 256, "overrides": (*port, *changes)}
        return one / step_s(f"zero_stage=3,micro_batch_size=8{text}", **shared)

    flat, hybrid = efficiency(""), efficiency(",dp_shard=4")
    assert 0.7 < flat < 0.85
    assert abs(hybrid - flat) < 0.05
    assert efficiency(",dp_shard=4", "recipe.reduces_each_micro_batch=false") > flat + 0.05


def test_two_gpus_without_nvlink_wait_for_each_other() -> None:
    """GPT-2, data parallel on two cards: all of a second card with NVLink, about four fifths of it over PCIe."""
    job: dict[str, Any] = {"model": "gpt2", "cluster": "dgx-1-v100", "seq_len": "1k", "recipe": "trainer"}

    def efficiency(kind: str, bandwidth: float, links: int) -> float:
        fields = {"kind": kind, "link_bandwidth_bytes_per_s": bandwidth, "links_per_gpu": links}
        changes = tuple(f"cluster.tiers.0.{name}={value}" for name, value in fields.items())
        one, two = (
            step_s("zero_stage=0,micro_batch_size=8", gpus=gpus, global_batch=8 * gpus, overrides=changes, **job)
            for gpus in (1, 2)
        )
        return one / two

    assert efficiency("nvlink", 25e9, 4) > 0.95
    assert 0.7 < efficiency("pcie", 12e9, 1) < 0.9


@pytest.mark.slow
def test_what_does_not_fit_needs_the_host_or_more_gpus() -> None:
    """235B fits on 64 GPUs, not on 32; 72B on 128 cards of 16 GB, not on 48: not without the memory of hosts.

    What fits with it takes a search of minutes, which `plan` makes by itself then.
    """
    large = {"model": "qwen3-235b-a22b", "gpu": "h100-sxm", "seq_len": "4k", "global_batch": 128}
    assert [fits_on_gpus(**large, gpus=gpus) for gpus in (32, 64)] == [False, True]
    small_cards = {"model": "qwen2.5-72b", "gpu": "v100-16", "seq_len": "2k", "global_batch": 96}
    assert [fits_on_gpus(**small_cards, gpus=gpus) for gpus in (48, 128)] == [False, True]


@pytest.mark.slow
def test_long_context_needs_more_than_sharding() -> None:
    """7B on eight A100: 64k in their memory; 128k only with the context split, recompute or more GPUs."""
    job = {"model": "llama2-7b", "gpu": "a100-80-sxm", "gpus": 8, "global_batch": 8}
    found = studied(job, "seq-len=64k,128k")
    assert not offloads(found["64k"])
    longer = found["128k"].plan
    assert longer is None or longer.offload > 0 or longer.parallelism.cp * longer.parallelism.tp > 1


@pytest.mark.slow
def test_more_nodes_help_where_the_layout_may_change() -> None:
    """72B on nodes of eight A100 of 40 GB: one has to offload, eight have not, and none shards flat over all GPUs."""
    job = {"model": "qwen2.5-72b", "cluster": "dgx-a100-40", "seq_len": "4k", "global_batch": 64}
    found = studied(job, "gpus=8,64")
    assert offloads(found["8"])
    many, one = found["64"].plan, found["8"].plan
    assert many is not None
    assert many.offload == 0
    assert one is None or many.tokens_per_s_per_gpu > one.tokens_per_s_per_gpu
    assert many.parallelism.tp * many.parallelism.pp * many.parallelism.cp > 1


@pytest.mark.slow
def test_a_domain_of_racks_is_worth_its_name() -> None:
    """DeepSeek-V3 on 256 GB200, four to a host: NVLink over 64 GPUs beats 4, and no expert group is wider."""
    job = {"model": "deepseek-v3", "cluster": "gb200-nvl72", "gpus": 256, "seq_len": "4k", "global_batch": 2048}
    found = studied(job, "cluster.tiers.0.domain_gpus=4,64")
    host, rack = found["4"].plan, found["64"].plan
    assert host is not None
    assert rack is not None
    assert rack.step_time_s < host.step_time_s
    assert rack.parallelism.ep * rack.parallelism.etp <= 64

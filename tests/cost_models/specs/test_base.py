"""What every spec promises: frozen, strict, and errors in one plain line of our own."""

import copy
import pickle
from typing import Any

import pytest
from hypothesis import given

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError, UnknownNameError
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.model import ModelSpec
from cost_models.specs.profile import GemmRoofline
from cost_models.specs.workload import WorkloadSpec
from tests.strategies import any_model_specs, cluster_specs

MODEL: dict[str, Any] = {
    "name": "tiny",
    "layers": 2,
    "hidden": 64,
    "ffn": 256,
    "heads": 4,
    "kv_heads": 2,
    "head_dim": 16,
    "vocab": 100,
    "max_seq_len": 128,
}
GPU: dict[str, Any] = {
    "name": "card",
    "nominal_memory_bytes": 80,
    "usable_memory_bytes": 79,
    "memory_bandwidth_bytes_per_s": 1e12,
    "peak_flops": {"bf16": 1e15},
    "streaming_multiprocessors": 100,
    "nvlink_bandwidth_bytes_per_s": 0.0,
    "pcie_bandwidth_bytes_per_s": 32e9,
    "power_w": 100.0,
}
TIER: dict[str, Any] = {
    "name": "net",
    "kind": "network",
    "link_bandwidth_bytes_per_s": 50e9,
    "links_per_gpu": 1.0,
    "latency_s": 1e-5,
}
CLUSTER: dict[str, Any] = {
    "name": "small",
    "gpu": GPU,
    "gpus": 16,
    "gpus_per_node": 8,
    "tiers": [TIER],
    "host_memory_bytes": 10**12,
    "host_to_device_bandwidth_bytes_per_s": 20e9,
}


@pytest.mark.parametrize(
    ("spec", "fields", "message"),
    [
        (ModelSpec, MODEL | {"hiden": 3}, "unknown field 'hiden' in model; did you mean 'hidden'?"),
        (ModelSpec, MODEL | {"layers": 0}, "model.layers must be >= 1, got 0"),
        (ModelSpec, MODEL | {"layers": True}, "model.layers must be a whole number, got True"),
        (ModelSpec, MODEL | {"layers": "2"}, "model.layers must be a whole number, got '2'"),
        (ModelSpec, MODEL | {"layers": 2.5}, "model.layers must be a whole number, got 2.5"),
        (ModelSpec, MODEL | {"layers": 10**20}, f"model.layers must be <= 10000, got {10**20}"),
        (ModelSpec, MODEL | {"kv_heads": 3}, "model.kv_heads must divide heads (4), got 3"),
        (ModelSpec, MODEL | {"kv_heads": 8}, "model.kv_heads must divide heads (4), got 8"),
        (ModelSpec, MODEL | {"head_dim": 15}, "model.head_dim must be even with rotary positions, got 15"),
        (ModelSpec, MODEL | {"norm": "l2"}, "model.norm must be one of 'rmsnorm' or 'layernorm', got 'l2'"),
        (ModelSpec, MODEL | {"gated_mlp": "yes"}, "model.gated_mlp must be true or false, got 'yes'"),
        (ModelSpec, MODEL | {"name": ""}, "model.name must be text that is not empty, got ''"),
        (GpuSpec, GPU | {"peak_flops": {"bf16": -1.0}}, "gpu.peak_flops.bf16 must be > 0, got -1.0"),
        (GpuSpec, GPU | {"peak_flops": {"fp8": 1.0}}, "gpu.peak_flops must name bf16, got ['fp8']"),
        (GpuSpec, GPU | {"power_w": float("nan")}, "gpu.power_w must be a finite number, got nan"),
        (GpuSpec, GPU | {"peak_flops": 3}, "gpu.peak_flops must be a table, got 3"),
        (
            ClusterSpec,
            CLUSTER | {"gpu": GPU | {"peak_flops": {"fp8": 1.0}}},
            "cluster.gpu.peak_flops must name bf16, got ['fp8']",
        ),
        (ClusterSpec, CLUSTER | {"gpus": 0}, "cluster.gpus must be >= 1, got 0"),
        (ClusterSpec, CLUSTER | {"tiers": []}, "cluster.tiers must be a list that is not empty, got []"),
        (
            ClusterSpec,
            CLUSTER | {"tiers": [TIER | {"kind": "wifi"}]},
            "cluster.tiers[0].kind must be one of 'nvlink', 'mesh', 'pcie' or 'network', got 'wifi'",
        ),
        (
            ClusterSpec,
            CLUSTER | {"tiers": [TIER | {"domain_gps": 8}]},
            "unknown field 'domain_gps' in cluster.tiers[0]; did you mean 'domain_gpus'?",
        ),
        (
            ClusterSpec,
            CLUSTER | {"gpu": GPU | {"powr_w": 1.0}},
            "unknown field 'powr_w' in cluster.gpu; did you mean 'power_w'?",
        ),
        (
            GemmRoofline,
            {"peak_fraction": 1.5, "bandwidth_fraction": 1, "launch_s": 0},
            "gemm.peak_fraction must be <= 1, got 1.5",
        ),
    ],
)
def test_a_fault_is_one_line_with_path_value_and_what_is_allowed(
    spec: type[ModelSpec], fields: dict[str, Any], message: str
) -> None:
    """The message is ours to the letter, whichever way the spec is built."""
    for build in (lambda: spec(**fields), lambda: spec.model_validate(fields)):
        with pytest.raises(SpecError) as caught:
            build()
        assert str(caught.value) == message


def test_every_fault_is_named_and_pydantic_never_shows() -> None:
    """Several faults give several lines; no text or chained traceback of pydantic is left."""
    with pytest.raises(SpecError) as caught:
        ModelSpec(**(MODEL | {"layers": 0, "hidden": -1, "hiden": 2}))
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert "pydantic" not in str(caught.value).lower()
    assert "validation error" not in str(caught.value).lower()
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__


def test_a_missing_field_is_named() -> None:
    """What is required is said, with its path."""
    with pytest.raises(SpecError, match=r"^model\.vocab is required$"):
        ModelSpec(**{name: value for name, value in MODEL.items() if name != "vocab"})


def test_an_unknown_field_alone_is_an_unknown_name() -> None:
    """Callers can tell a misspelling from a bad value."""
    with pytest.raises(UnknownNameError):
        ModelSpec(**(MODEL | {"zzzzzz": 1}))


def test_json_faults_are_translated_too() -> None:
    """Broken JSON and broken content both become SpecError."""
    for text in ("{", '{"seq_len": 0, "global_batch": 1}'):
        with pytest.raises(SpecError, match="workload"):
            WorkloadSpec.model_validate_json(text)


def test_specs_are_frozen_all_the_way_down() -> None:
    """Neither a field nor a table inside can be changed; the copies are made by replaced()."""
    gpu = GpuSpec(**GPU)
    with pytest.raises(TypeError, match=r"^gpu\.power_w cannot be changed: a spec is frozen"):
        gpu.power_w = 1.0
    for change in (lambda: gpu.peak_flops.update(bf16=1.0), lambda: gpu.sources.__setitem__("power_w", "x")):  # type: ignore[attr-defined]
        with pytest.raises(TypeError, match="frozen"):
            change()
    assert gpu.replaced(power_w=1.0).power_w == 1.0
    assert gpu.power_w == 100.0


def test_replaced_validates() -> None:
    """A changed copy is checked like any other spec."""
    with pytest.raises(SpecError, match=r"^gpu\.power_w must be > 0, got 0\.0$"):
        GpuSpec(**GPU).replaced(power_w=0.0)


@given(cluster_specs(), any_model_specs())
def test_specs_survive_json_pickle_and_copy_and_hash_alike(cluster: ClusterSpec, model: ModelSpec) -> None:
    """Every round trip gives an equal spec with an equal hash."""
    for spec in (cluster, model):
        trips = [
            type(spec).model_validate_json(spec.model_dump_json()),
            pickle.loads(pickle.dumps(spec)),
            copy.deepcopy(spec),
        ]
        assert all(trip == spec and hash(trip) == hash(spec) for trip in trips)

"""Whole layers in place: which are timed, that they run, and what becomes of their seconds."""

import pytest

pytest.importorskip("torch")

from cli.measure import _in_place
from planner.beyond import InPlace
from planner.operator_sizes import operator_sizes
from planner.request import build_request
from profiler.candidates import LAYERS, _layers, layer_shape
from profiler.crew import forked
from profiler.points import Measured, Point
from profiler.work import measure_with, most_bytes
from runtime import alone_layers
from runtime.host_memory import keep_freed_memory

REQUEST = build_request(
    "data/loop/small-llama.toml", 2, gpu="l4", gpus_per_node=2, seq_len="256", global_batch=8, recipe="runtime-cpu"
).replaced(fixed={"cp": 1})


def test_layers_of_every_micro_batch_are_timed() -> None:
    """One to eight sequences of 256 tokens; of a model with experts none, for the runtime has none."""
    points = _layers(REQUEST.model, operator_sizes(REQUEST))
    assert set(points) == set(LAYERS)
    assert {point.sizes for point in points["layers_forward"]} == {(256,), (512,), (1024,), (2048,)}
    experts = build_request("mixtral-8x7b", 2, gpu="l4", gpus_per_node=2)
    assert _layers(experts.model, operator_sizes(experts)) == {}


@pytest.mark.parametrize("layernorm", [0, 1])
def test_layers_run_both_ways(layernorm: int) -> None:
    """Gated and not; backward and forward take longer than the forward. Nothing is allocated to tell their bytes."""
    detail = (64, 4, 2, 16, 96, 1 - layernorm, layernorm, 16, 2)
    measure = measure_with(alone_layers.MAKERS, frozenset(), prepare=keep_freed_memory)
    with forked(2, measure, on_gpus=False) as crew:
        forward, both = (crew.measure(Point(name, (32,), detail), 0.05).seconds for name in LAYERS)
    assert 0 < forward < both
    large = Point("layers_forward", (2**22,), (4096, 32, 8, 128, 14336, 1, 0, 2**22, 4))
    assert most_bytes(large, alone_layers.MAKERS) > 3 * 40 * 4 * 2 * 2**22 * 4096


def test_seconds_are_those_of_one_layer() -> None:
    """Of the model asked for, where both passes were timed."""
    own, other = (*layer_shape(REQUEST.model), 256, 4), (1, 1, 1, 1, 1, 1, 0, 256, 4)
    timed = [
        Measured(Point("layers_forward", (512,), own), 4.0, 0.0, 5),
        Measured(Point("layers_both_ways", (512,), own), 12.0, 0.0, 5),
        Measured(Point("layers_forward", (256,), own), 2.0, 0.0, 5),
        Measured(Point("layers_forward", (512,), other), 9.0, 0.0, 5),
        Measured(Point("launch", (1,)), 9.0, 0.0, 5),
    ]
    assert _in_place(timed, REQUEST.model) == [InPlace(2, 512, 1.0, 3.0)]

"""Whole layers in place: which are timed, that they run, and what becomes of their seconds."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from cli.in_place import layers_in_place, pipelines_in_place
from planner.beyond import InPlace
from planner.operator_sizes import bytes_of_a_token, operator_sizes
from planner.request import build_request
from profiler.candidates import (
    LAYERS,
    PIPELINES,
    SHARED_LAYERS,
    _layers,
    _pipelines,
    _shared_layers,
    candidates,
    layer_shape,
)
from profiler.crew import forked
from profiler.points import Measured, Point
from profiler.work import measure_with, most_bytes
from runtime.alone_table import MAKERS
from runtime.host_memory import keep_freed_memory

REQUEST, OF_FOUR = (
    build_request(
        "data/loop/small-llama.toml",
        ranks,
        gpu="l4",
        gpus_per_node=ranks,
        seq_len="256",
        global_batch=8,
        recipe="runtime-cpu",
    ).replaced(fixed={"cp": 1})
    for ranks in (2, 4)
)


def test_layers_of_every_micro_batch_are_timed() -> None:
    """One to eight sequences of 256 tokens; of a model with experts none, for the runtime has none."""
    points = _layers(REQUEST.model, operator_sizes(REQUEST))
    assert set(points) == set(LAYERS)
    assert {point.sizes for point in points["layers_forward"]} == {(256,), (512,), (1024,), (2048,)}
    experts = build_request("mixtral-8x7b", 2, gpu="l4", gpus_per_node=2)
    assert _layers(experts.model, operator_sizes(experts)) == {}


def test_layers_are_timed_for_every_number_of_ranks_that_share_them() -> None:
    """Two ranks of two; of four also four, but for a model of two key and value heads."""
    sizes = operator_sizes(REQUEST)
    points = _shared_layers(REQUEST.model, sizes, sequence_parallel=True)
    assert set(points) == set(SHARED_LAYERS)
    expected = [((256 * size,), (*layer_shape(REQUEST.model), 4, 256, 2, 1)) for size in (1, 2, 4, 8)]
    assert [(point.sizes, point.detail) for point in points["shared_layers_forward"]] == expected
    four = operator_sizes(OF_FOUR)
    for kv_heads, degrees in ((4, {2, 4}), (2, {2})):
        found = _shared_layers(REQUEST.model.replaced(kv_heads=kv_heads), four, sequence_parallel=False)
        assert {point.detail[-2:] for point in found["shared_layers_forward"]} == {(each, 0) for each in degrees}


def test_pipelines_are_timed_where_ranks_have_neighbours() -> None:
    """The same layers, of every micro-batch; three ranks are not all in pairs."""
    sizes = operator_sizes(REQUEST)
    points = _pipelines(REQUEST.model, sizes)
    assert set(points) == set(PIPELINES)
    for of_schedule in points.values():
        assert [point.sizes for point in of_schedule] == [(256,), (512,), (1024,), (2048,)]
        assert {point.detail for point in of_schedule} == {(*layer_shape(REQUEST.model), 4, 256)}
    tokens = bytes_of_a_token(REQUEST)
    found = [candidates(REQUEST.model, REQUEST.recipe, sizes, tokens, ranks)[0] for ranks in (2, 3)]
    assert [set(PIPELINES) <= set(each) for each in found] == [True, False]


@pytest.mark.parametrize("layernorm", [0, 1])
def test_layers_run_both_ways(layernorm: int) -> None:
    """Gated and not, alone, shared by two ranks, in pipelines. Nothing is allocated to tell their bytes."""
    detail = (64, 4, 2, 16, 96, 1 - layernorm, layernorm, 2, 16)
    measure = measure_with(MAKERS, prepare=keep_freed_memory)
    with forked(2, measure, on_gpus=False) as crew:
        forward, both, split = (crew.measure(Point(name, (32,), detail), 0.05).seconds for name in LAYERS)
        for shares_tokens in (0, 1):
            points = (Point(name, (32,), (*detail, 2, shares_tokens)) for name in SHARED_LAYERS)
            assert all(crew.measure(point, 0.05).seconds > 0 for point in points)
    assert 0 < forward < min(both, split)
    with forked(4, measure, on_gpus=False) as crew:  # buffers of any size, in rotation or not
        for rows in (32, 4096):
            points = (Point(name, (rows,), detail) for name in PIPELINES)
            assert all(crew.measure(point, 0.05).seconds > 0 for point in points)
    large = Point("layers_forward", (2**22,), (4096, 32, 8, 128, 14336, 1, 0, 4, 2**22))
    taken = 3 * 40 * 4 * 2 * 2**22 * 4096
    assert most_bytes(large, MAKERS) > taken
    split, *pipelines = (replace(large, operator=name) for name in (LAYERS[-1], *PIPELINES))
    assert most_bytes(split, MAKERS) == most_bytes(large, MAKERS)
    assert all(most_bytes(pipeline, MAKERS) > 4 * taken for pipeline in pipelines)
    shared = Point("shared_layers_forward", large.sizes, (*large.detail, 2, 1))
    assert taken / 2 < most_bytes(shared, MAKERS) < 0.51 * most_bytes(large, MAKERS)


def test_seconds_are_those_of_one_layer() -> None:
    """Of the model asked for, where both passes were timed."""
    own, other = (*layer_shape(REQUEST.model), 4, 256), (1, 1, 1, 1, 1, 1, 0, 4, 256)
    timed = [
        Measured(Point("layers_forward", (512,), own), 4.0, 0.0, 5),
        Measured(Point("layers_both_ways", (512,), own), 12.0, 0.0, 5),
        Measured(Point("layers_forward", (256,), own), 2.0, 0.0, 5),
        Measured(Point("layers_forward", (512,), other), 9.0, 0.0, 5),
        Measured(Point("launch", (1,)), 9.0, 0.0, 5),
        Measured(Point("shared_layers_forward", (512,), (*own, 2, 1)), 8.0, 0.0, 5),
        Measured(Point("shared_layers_both_ways", (512,), (*own, 2, 1)), 20.0, 0.0, 5),
        Measured(Point("shared_layers_split", (512,), (*own, 2, 1)), 24.0, 0.0, 5),
    ]
    assert layers_in_place(timed, REQUEST.model) == [InPlace(2, 512, 1.0, 3.0)]
    assert layers_in_place(timed, REQUEST.model, 2) == [InPlace(2, 256, 2.0, 5.0, 6.0)]
    timed.append(Measured(Point("layers_split", (512,), own), 16.0, 0.0, 5))
    assert layers_in_place(timed, REQUEST.model) == [InPlace(2, 512, 1.0, 3.0, 4.0)]
    assert layers_in_place(timed, REQUEST.model, 4) == []


def test_pipelines_are_those_of_one_model() -> None:
    """Whose layers were timed, too; steps as they were timed, layers by themselves, a hop as the profile has it."""
    own = (*layer_shape(REQUEST.model), 4, 256)
    timed = [
        Measured(Point(name, (rows,), own), seconds, 0.0, 5)
        for rows in (256, 512)
        for name, seconds in zip((*LAYERS[:2], *PIPELINES), (4.0, 12.0, 70.0, 60.0), strict=True)
        if (rows, name) != (256, "layers_forward")
    ]
    (found,) = pipelines_in_place(timed, REQUEST.model, REQUEST)
    assert (found.tokens, found.layers, found.micro_batches, found.forward_s, found.both_ways_s) == (512, 4, 4, 1, 3)
    assert found.step_s == {"1f1b": 70.0, "interleaved": 60.0}
    assert 0 < found.hop_s < 1e-3

"""Whole layers in place: which are timed, that they run, and what becomes of their seconds."""

from dataclasses import replace

import pytest

pytest.importorskip("torch")

from cli.measure import _in_place
from planner.beyond import InPlace
from planner.operator_sizes import bytes_of_a_token, operator_sizes
from planner.request import build_request
from profiler.candidates import LAYERS, SHARED_LAYERS, STAGE, _layers, _shared_layers, _stages, candidates, layer_shape
from profiler.crew import forked
from profiler.points import Measured, Point
from profiler.work import measure_with, most_bytes
from runtime import alone_layers, alone_stages
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


def test_stages_are_timed_where_ranks_have_neighbours() -> None:
    """One layer each, of every micro-batch; three ranks are not all in pairs."""
    sizes = operator_sizes(REQUEST)
    points = _stages(REQUEST.model, sizes)
    assert set(points) == {STAGE}
    assert [point.sizes for point in points[STAGE]] == [(256,), (512,), (1024,), (2048,)]
    assert {point.detail for point in points[STAGE]} == {(*layer_shape(REQUEST.model), 1, 256)}
    tokens = bytes_of_a_token(REQUEST)
    found = [candidates(REQUEST.model, REQUEST.recipe, sizes, tokens, ranks)[0] for ranks in (2, 3)]
    assert [STAGE in each for each in found] == [True, False]


@pytest.mark.parametrize("layernorm", [0, 1])
def test_layers_run_both_ways(layernorm: int) -> None:
    """Gated and not, alone, shared by two ranks, as a stage. Nothing is allocated to tell their bytes."""
    detail = (64, 4, 2, 16, 96, 1 - layernorm, layernorm, 2, 16)
    together = {**alone_layers.SHARED_MAKERS, **alone_stages.MAKERS}
    measure = measure_with({**alone_layers.MAKERS, **together}, frozenset(together), prepare=keep_freed_memory)
    with forked(2, measure, on_gpus=False) as crew:
        forward, both, split = (crew.measure(Point(name, (32,), detail), 0.05).seconds for name in LAYERS)
        for shares_tokens in (0, 1):
            points = (Point(name, (32,), (*detail, 2, shares_tokens)) for name in SHARED_LAYERS)
            assert all(crew.measure(point, 0.05).seconds > 0 for point in points)
    assert 0 < forward < min(both, split)
    with forked(4, measure, on_gpus=False) as crew:  # buffers of any size, in rotation or not
        for rows in (32, 4096):
            assert crew.measure(Point(STAGE, (rows,), (*detail[:-2], 1, 16)), 0.05).seconds > 0
    large = Point("layers_forward", (2**22,), (4096, 32, 8, 128, 14336, 1, 0, 4, 2**22))
    taken = 3 * 40 * 4 * 2 * 2**22 * 4096
    assert most_bytes(large, alone_layers.MAKERS) > taken
    split, stage = (replace(large, operator=name) for name in (LAYERS[-1], STAGE))
    assert most_bytes(split, alone_layers.MAKERS) == most_bytes(stage, alone_stages.MAKERS) > taken
    shared = Point("shared_layers_forward", large.sizes, (*large.detail, 2, 1))
    assert taken / 2 < most_bytes(shared, alone_layers.SHARED_MAKERS) < 0.51 * most_bytes(large, alone_layers.MAKERS)


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
    assert _in_place(timed, REQUEST.model) == [InPlace(2, 512, 1.0, 3.0)]
    assert _in_place(timed, REQUEST.model, 2) == [InPlace(2, 256, 2.0, 5.0, 6.0)]
    timed += [
        Measured(Point("layers_split", (512,), own), 16.0, 0.0, 5),
        Measured(Point(STAGE, (512,), (*own[:-2], 1, 256)), 5.0, 0.0, 5),
    ]
    assert _in_place(timed, REQUEST.model) == [InPlace(2, 512, 1.0, 3.0, 4.0, 5.0)]
    assert _in_place(timed, REQUEST.model, 4) == []

"""Shapes are those of the expressions that the search evaluates."""

import pytest

pytest.importorskip("torch")

from cost_models.exchange import moved_for_a_parameter
from planner.operator_sizes import bytes_of_a_token, operator_sizes
from planner.request import PlanRequest, build_request
from profiler.candidates import candidates, host_copies
from runtime import alone, alone_links, alone_states


@pytest.fixture(scope="module")
def request_of_two() -> PlanRequest:
    """Two ranks, eight sequences."""
    return build_request(
        "data/loop/small-llama.toml", 2, gpu="l4", gpus_per_node=2, seq_len="256", global_batch=8, recipe="runtime-cpu"
    ).replaced(fixed={"cp": 1})


def test_products_are_those_of_every_sharding(request_of_two: PlanRequest) -> None:
    """The fused projection of queries, keys and values: whole and halved by TP, micro-batches of 1 to 8 sequences."""
    sizes = operator_sizes(request_of_two)["gemm_forward"]
    widths = {columns for rows, columns, inner in sizes if inner == 512}
    assert {1024.0, 512.0, 2816.0, 1408.0, 4096.0, 2048.0} <= widths
    assert {rows for rows, _, _ in sizes} == {256.0, 512.0, 1024.0, 2048.0}


def test_memory_bound_operators_are_counted_by_the_token(request_of_two: PlanRequest) -> None:
    """A norm in pieces makes 18 passes of two bytes; a loss moves what the recipe says of a logit."""
    counted = bytes_of_a_token(request_of_two)
    assert counted["norm_forward"] == 18 * 2 * 512
    assert counted["loss_forward"] + counted["loss_backward"] == 24 * 4096


def test_every_point_has_a_maker(request_of_two: PlanRequest) -> None:
    """What is to be measured is what the runtime can run alone, and memory-bound points know what they count."""
    found, counted = candidates(
        request_of_two.model,
        request_of_two.recipe,
        operator_sizes(request_of_two),
        bytes_of_a_token(request_of_two),
        2,
    )
    makers = {**alone.MAKERS, **alone_states.MAKERS, **alone_links.MAKERS}
    assert {*found, *host_copies()} == set(makers)
    for name, points in found.items():
        if len(points[0].sizes) == 1 and name != "launch":
            assert all((name, point.detail) in counted for point in points), name


def test_states_move_what_the_recipe_says(request_of_two: PlanRequest) -> None:
    """AdamW reads a gradient, reads and writes master and moments, writes a weight: 30 bytes a parameter."""
    assert moved_for_a_parameter(request_of_two.recipe)["optimizer_step"] == 4 + 2 * (4 + 8) + 2

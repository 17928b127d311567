"""Shapes are those of the expressions that the search evaluates."""

from functools import partial

import pytest

pytest.importorskip("torch")

from cost_models.exchange import moved_for_a_parameter
from planner.operator_sizes import bytes_of_a_token, operator_sizes
from planner.request import PlanRequest, build_request
from profiler.candidates import IN_PLACE, candidates, host_copies, that_fit
from profiler.errors import ProfilerError
from profiler.points import Point
from profiler.work import most_bytes
from runtime.alone_table import MAKERS


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


def test_points_that_memory_does_not_hold_are_left_out() -> None:
    """Logits of 64 Ki tokens: 2 bytes each, four times for the loss's backward, three times with temporaries."""
    loss = [Point("loss_backward", (rows,), (4096,)) for rows in (2**10, 2**16)]
    copies = [Point("host_to_device", (2**40,))]
    taken = 3 * 4 * 2 * 2**16 * 4096
    bytes_of = partial(most_bytes, makers=MAKERS)
    assert bytes_of(loss[1]) == taken
    assert bytes_of(copies[0]) == 2**41
    assert that_fit({"loss_backward": loss}, bytes_of, taken - 1) == {"loss_backward": loss[:1]}
    with pytest.raises(ProfilerError, match=r"host_to_device\(1,099,511,627,776\) is the smallest .* --seq-len"):
        that_fit({"loss_backward": loss, "host_to_device": copies}, bytes_of, taken)


def test_every_point_has_a_maker(request_of_two: PlanRequest) -> None:
    """What is to be measured is what the runtime can run alone, and memory-bound points know what they count."""
    found, counted = candidates(
        request_of_two.model,
        request_of_two.recipe,
        operator_sizes(request_of_two),
        bytes_of_a_token(request_of_two),
        2,
    )
    assert {*found, *host_copies()} == set(MAKERS)
    for name, points in found.items():
        if len(points[0].sizes) == 1 and name not in ("launch", *IN_PLACE):
            assert all((name, point.detail) in counted for point in points), name


def test_states_move_what_the_recipe_says(request_of_two: PlanRequest) -> None:
    """AdamW reads a gradient, reads and writes master and moments, writes a weight: 30 bytes a parameter."""
    assert moved_for_a_parameter(request_of_two.recipe)["optimizer_step"] == 4 + 2 * (4 + 8) + 2

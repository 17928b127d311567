from itertools import pairwise

import pytest

from cost_models import schedules
from planner.timeline.path import MOST_LEGS, legs, shortened
from tests.planner.timeline.cases import GOLDEN, equal_step, plan_timeline, split_gradients, two_ranks


def test_the_path_of_two_ranks_in_words() -> None:
    """Where hops take time, each micro-batch goes down and comes back before rank 0 sends the next but one."""
    path = legs(two_ranks(hop_s=0.25, edge_s=0.5, global_s=1.0))
    assert [(leg.end_s, leg.text) for leg in path] == [
        (0.5, "rank 0: exchanges before its first forward"),
        (1.75, "rank 0: forward of micro-batch 0, hop to rank 1"),
        (5.0, "rank 1: forward and backward of micro-batch 0, hop to rank 0"),
        (8.25, "rank 0: forward of micro-batch 2, backward of micro-batch 0, hop to rank 1"),
        (11.5, "rank 1: forward and backward of micro-batch 2, hop to rank 0"),
        (13.5, "rank 0: backward of micro-batch 2"),
        (14.0, "rank 0: exchanges after its last backward"),
        (15.0, "all ranks: the global part, optimizer step and what nothing hides"),
    ]


def test_a_micro_batch_that_passes_through_ranks_is_one_leg() -> None:
    """With four ranks the first forward passes three of them before the last rank goes to work."""
    path = legs(equal_step(schedules.actions("gpipe", 4, 1, 3)))
    assert [(leg.end_s, leg.text) for leg in path] == [
        (3, "forward of micro-batch 0 from rank 0 to rank 2, 2 hops, hop to rank 3"),
        (8, "rank 3: 3 forwards of micro-batches 0..2, backward of micro-batch 0, hop to rank 2"),
        (12, "backward of micro-batch 0 from rank 2 to rank 1, 1 hop, hop to rank 0"),
        (18, "rank 0: 3 backwards of micro-batches 0..2"),
    ]
    assert [leg.ranks for leg in path] == [(0, 1, 2), (3,), (1, 2), (0,)]


def test_kinds_of_gradients_are_told_apart() -> None:
    """The rank that splits its backward is left after its input gradient."""
    texts = [leg.text for leg in legs(split_gradients())]
    assert texts[1] == "rank 1: forward and input gradient of micro-batch 0, hop to rank 0"


def test_chunks_are_told_where_there_are_several() -> None:
    """The way through two chunks of two ranks crosses three links."""
    path = legs(equal_step(schedules.actions("interleaved", 2, 2, 2), hop_s=2))
    assert path[0].text == "forward of micro-batch 0 from rank 0 chunk 0 to rank 0 chunk 1, 2 hops, hop to rank 1"
    assert path[1].text == "rank 1: 2 forwards and 2 backwards of micro-batches 0..1 (chunk 1), hop to rank 0"


@pytest.mark.parametrize("name", GOLDEN)
def test_legs_fill_the_step_and_few_are_told(name: str) -> None:
    """Each leg begins where the one before ends, from 0 to the end of the step, shortened or not."""
    step = plan_timeline(name).step
    for path in (legs(step), shortened(legs(step))):
        assert path[0].start_s == 0
        assert path[-1].end_s == step.step_s
        assert all(one.end_s == other.start_s and one.start_s < one.end_s for one, other in pairwise(path))
    assert len(shortened(legs(step))) <= MOST_LEGS
    assert max(legs(step), key=lambda leg: leg.end_s - leg.start_s) in shortened(legs(step))

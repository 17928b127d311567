import numpy as np

from cost_models.schedules.dependencies import dependencies
from cost_models.schedules.table import ActionTable, two_way_placement, v_placement
from tests.cost_models.schedules.cases import table_of


def test_actions_wait_for_their_rank_and_for_the_neighbour_that_sends() -> None:
    """A forward waits for the stage before, a gradient for the stage after, a weight gradient for neither."""
    table = table_of("F0 I0 W0", "F0 B0")
    needs = dependencies(table)
    assert needs.previous.tolist() == [-1, 0, 1, -1, 3]
    assert needs.source.tolist() == [-1, 4, -1, 0, -1]
    assert needs.link.tolist() == [2, 0, 2, 0, 2]
    assert needs.level.tolist() == [1, 4, 5, 2, 3]


def test_the_next_chunk_of_rank_0_waits_for_the_last_rank_over_the_wrap_around_link() -> None:
    """Chunk 1 of rank 0 takes its input from chunk 0 of rank p - 1, and sends its gradient back there."""
    table = table_of("F0.0 F1.0 B1.0 B0.0", "F0.0 F1.0 B1.0 B0.0", v=2)
    needs = dependencies(table)
    assert needs.source.tolist() == [-1, 4, 6, 7, 0, 1, -1, 2]
    assert needs.link.tolist() == [2, 1, 0, 0, 0, 0, 2, 1]


def test_a_micro_batch_comes_back_through_the_second_chunk_of_a_v() -> None:
    """The turn is on the last rank; the link from rank 1 back to rank 0 is link 0."""
    rows = [np.array([(0, 0, 0, 0), (0, 1, 0, 0), (2, 1, 0, 0), (2, 0, 0, 0), (3, 1, 0, 0), (3, 0, 0, 0)])] * 2
    needs = dependencies(ActionTable.of("v", v_placement(2), rows, micro_batches=1))
    assert needs.source.tolist() == [-1, 7, -1, 9, -1, -1, 0, 6, 2, 8, -1, -1]
    assert needs.link.tolist() == [2, 0, 2, 0, 2, 2, 0, 2, 0, 2, 2, 2]


def test_the_copies_of_a_model_do_not_wait_for_each_other() -> None:
    """Micro-batch 0 goes from rank 0 to rank 1, micro-batch 1 the other way, over the same link."""
    down, up = [(0, 0, 0, 0), (1, 0, 0, 0)], [(0, 1, 1, 0), (1, 1, 1, 0)]
    rows = [np.array([down[0], up[0], down[1], up[1]]), np.array([up[0], down[0], down[1], up[1]])]
    needs = dependencies(ActionTable.of("two ways", two_way_placement(2), rows, micro_batches=2))
    assert needs.source.tolist() == [-1, 4, 6, -1, -1, 0, -1, 3]
    assert needs.link.tolist() == [2, 0, 0, 2, 2, 0, 2, 0]

from cost_models.schedules.dependencies import dependencies
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

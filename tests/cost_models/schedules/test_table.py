import numpy as np
import pytest

from cost_models.schedules import one_f_one_b
from cost_models.schedules.table import Action, Kind, looped_placement, two_way_placement, v_placement
from tests.cost_models.schedules.cases import table_of


def test_chunk_c_of_rank_r_is_virtual_stage_c_p_plus_r() -> None:
    """Interleaving loops over the ranks, and the link after the last rank wraps around."""
    placement = looped_placement(3, 2)
    assert placement.stage_of().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert placement.link.tolist() == [0, 1, 2, 0, 1]
    assert placement.stages == 6


def test_chunks_of_a_single_rank_are_joined_by_no_link() -> None:
    """With one rank nothing is sent."""
    assert looped_placement(1, 3).link.tolist() == [1, 1]


def test_a_v_goes_down_the_ranks_and_back() -> None:
    """Rank i holds virtual stages i and 2p - 1 - i; the turn on the last rank crosses no link."""
    placement = v_placement(3)
    assert placement.stage_of().tolist() == [[0, 5], [1, 4], [2, 3]]
    assert placement.link.tolist() == [0, 1, 3, 1, 0]
    assert placement.route_of().tolist() == [[0, 0], [0, 0], [0, 0]]


def test_two_ways_are_two_copies_of_as_many_stages_as_ranks() -> None:
    """Rank i holds stage i of the first and stage p - 1 - i of the second; nothing joins the copies."""
    placement = two_way_placement(3)
    assert (placement.stages, placement.routes) == (6, 2)
    assert (placement.stage_of() % 3).tolist() == [[0, 2], [1, 1], [2, 0]]
    assert placement.route_of().tolist() == [[0, 1], [0, 1], [0, 1]]
    assert placement.link.tolist() == [0, 1, 1, 0]


def test_rank_actions_come_in_order_and_print_by_name() -> None:
    """A rank's actions are read off the table as (kind, chunk, micro-batch, slice)."""
    table = table_of("F0 F1 B0 B1", "F0 I0 W0 F1 B1")
    kinds = [action.kind for action in table.rank_actions(1)]
    assert kinds == [Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD, Kind.FORWARD, Kind.BACKWARD]
    assert table.action(2) == Action(Kind.BACKWARD, chunk=0, micro_batch=0, slice=0)
    assert str(table.action(3)) == "BACKWARD of chunk 0, micro-batch 1, slice 0"
    assert table.rank_of().tolist() == [0, 0, 0, 0, 1, 1, 1, 1, 1]
    assert (table.actions, table.ranks, table.chunks) == (9, 2, 1)


def test_tables_are_read_only() -> None:
    """A cached table cannot be changed by one of its users."""
    table = one_f_one_b.actions(2, 1, 2)
    with pytest.raises(ValueError, match="read-only"):
        table.kind[0] = Kind.BACKWARD
    assert np.all(table.slice == 0)

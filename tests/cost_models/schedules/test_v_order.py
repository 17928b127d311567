import numpy as np
import pytest

from cost_models.schedules import v_half, v_min
from cost_models.schedules.equal_stages import mean
from cost_models.schedules.simulate import action_times
from cost_models.schedules.table import Kind
from cost_models.schedules.v_order import PERIOD, controlled_bubble_s, squeezed_table
from tests.cost_models.schedules.cases import equal_times

BLOCKS = [("even", v_half.EVEN), ("odd", v_half.ODD), *((f"min{number}", b) for number, b in enumerate(v_min.BLOCKS))]


@pytest.mark.parametrize(("name", "p"), [("even", 4), ("even", 8), ("odd", 5), ("min0", 6), ("min1", 7), ("min2", 8)])
def test_ranks_are_busy_in_the_middle_of_the_step(name: str, p: int) -> None:
    """Between its ends the step repeats the block: each rank starts an action every unit, six for each micro-batch."""
    table = squeezed_table(name, dict(BLOCKS)[name], p, 8 * p)
    start, _ = action_times(table, equal_times(p, 2, 1, 1, 1))
    middle = range(PERIOD * 3 * p, PERIOD * 5 * p)
    for rank in range(p):
        mine = set(start[table.rank_start[rank] : table.rank_start[rank + 1]].tolist())
        assert mine.issuperset(middle)


@pytest.mark.parametrize(("name", "p"), [("even", 4), ("odd", 5), ("min0", 6)])
def test_micro_batches_run_in_order_in_every_pass(name: str, p: int) -> None:
    """Of each kind and chunk, 0 to m - 1."""
    table = squeezed_table(name, dict(BLOCKS)[name], p, 9)
    for rank in range(p):
        actions = table.rank_actions(rank)
        for kind in (Kind.FORWARD, Kind.INPUT_GRAD, Kind.WEIGHT_GRAD):
            for chunk in (0, 1):
                assert [a.micro_batch for a in actions if (a.kind, a.chunk) == (kind, chunk)] == list(range(9))


def test_the_ends_are_squeezed() -> None:
    """V-Min of 3 ranks and 2 micro-batches: weight gradients wait while there is anything else to do."""
    table = squeezed_table("v", v_min.BLOCKS[0], 3, 2)
    names = ["Ff", "", "Ii", "Ww"]
    orders = [" ".join(f"{names[a.kind][a.chunk]}{a.micro_batch}" for a in table.rank_actions(r)) for r in range(3)]
    assert orders == [
        "F0 F1 f0 i0 w0 f1 i1 I0 w1 W0 I1 W1",
        "F0 f0 F1 i0 f1 w0 I0 i1 W0 w1 I1 W1",
        "F0 f0 F1 f1 i0 I0 w0 W0 i1 I1 w1 W1",
    ]


def test_no_bubble_is_shorter_than_the_way_to_the_last_rank() -> None:
    """With much memory (6p - 1 - 3k) units would be too few."""
    rank = mean(equal_times(4, 2, 1, 1, 1))
    assert controlled_bubble_s(4, 6, rank) == 5
    assert controlled_bubble_s(4, 8, rank) == 3
    assert controlled_bubble_s(4, 8, rank, excess=2) == 5


def test_a_large_table_has_every_action() -> None:
    """25 thousand of them."""
    assert squeezed_table("v", v_half.EVEN, 16, 256).actions == 6 * 16 * 256


def test_the_number_of_micro_batches_only_lengthens_the_middle() -> None:
    """The starts of a longer step are those of a shorter one with more blocks in between."""
    short, long = (squeezed_table("v", v_half.EVEN, 4, m) for m in (16, 24))
    for rank in range(4):
        first, other = (np.array(table.rank_actions(rank)) for table in (short, long))
        head = PERIOD * 8
        assert np.array_equal(first[:head], other[:head])
        tail = other[-head:]
        assert np.array_equal(first[-head:] + [0, 0, 8, 0], tail)

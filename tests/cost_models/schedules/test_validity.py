import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.errors import InvalidTableError, ScheduleError
from cost_models.schedules.table import ActionTable, Kind, looped_placement, two_way_placement
from cost_models.schedules.validity import check
from tests.cost_models.schedules.cases import ALL, table_of


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_every_schedule_makes_valid_tables(name: str, p: int, v: int, m: int) -> None:
    """The one check accepts every table that a schedule makes."""
    table = schedules.actions(name, p, v, m)
    assert np.count_nonzero(table.kind == Kind.FORWARD) * table.placement.routes == p * v * m
    assert check(table).level.max() >= 2 * m * v // table.placement.routes


@pytest.mark.parametrize(
    "ranks",
    [
        ("F0 B0",),
        ("F0 F1 B0 B1", "F0 B0 F1 B1"),
        ("F0 F1 I0 I1 W0 W1", "F0 I0 W0 F1 B1"),
        ("F1 F0 B1 B0", "F1 B1 F0 B0"),
    ],
)
def test_hand_made_tables_pass(ranks: tuple[str, ...]) -> None:
    """Split backwards, mixed with whole ones, and any common order of the micro-batches are valid."""
    check(table_of(*ranks))


def test_slices_go_forwards_in_order_and_backwards_in_reverse() -> None:
    """A sliced table is valid in that order."""
    check(table_of("F0:0 F0:1 B0:1 B0:0", "F0:0 F0:1 B0:1 B0:0", slices=2))


@pytest.mark.parametrize(
    ("rule", "ranks", "slices"),
    [
        ("exactly once", ("F0 F1 B0",), 1),
        ("exactly once", ("F0 F1 B0 B1 B1",), 1),
        ("exactly once", ("F0 F0 B0",), 1),
        ("exactly once", ("F0 I0",), 1),
        ("exactly once", ("F0 B0 W0",), 1),
        ("exactly once", ("F0 B0 I0 W0",), 1),
        ("exactly once", ("F0 F1 B0 B1", "F0 B0"), 1),
        ("in range", ("F0:1 B0:0",), 1),
        ("in range", ("F1.0 B0",), 1),
        ("forward before backward", ("B0 F0",), 1),
        ("forward before backward", ("F0 W0 I0",), 1),
        ("forward before backward", ("I0 F0 W0",), 1),
        ("slice order", ("F0:1 F0:0 B0:1 B0:0",), 2),
        ("slice order", ("F0:0 F0:1 B0:0 B0:1",), 2),
        ("message order", ("F0 F1 B0 B1", "F1 F0 B0 B1"), 1),
        ("message order", ("F0 F1 B0 B1", "F0 F1 B1 B0"), 1),
        ("no deadlock", ("F0 B0 F1 B1", "F0 F1 B0 B1"), 1),
    ],
)
def test_a_broken_table_is_refused_by_the_rule_it_breaks(rule: str, ranks: tuple[str, ...], slices: int) -> None:
    """Each way of breaking a table is found and named."""
    with pytest.raises(InvalidTableError, match=rule) as caught:
        check(table_of(*ranks, slices=slices))
    assert caught.value.rule == rule
    assert isinstance(caught.value, ScheduleError)


def test_a_micro_batch_stays_on_its_route() -> None:
    """Every action of one copy of the model may not run on the other."""
    rows = [np.array(schedules.actions("dualpipe", 2, 2, 4).rank_actions(rank)) for rank in range(2)]
    for row in rows:
        row[row[:, 2] == 3, 1] = 0
    table = ActionTable.of("strayed", two_way_placement(2), rows, micro_batches=4)
    with pytest.raises(InvalidTableError, match="rank 0, chunk 0, micro-batch 3") as caught:
        check(table)
    assert caught.value.rule == "exactly once"


def test_each_route_has_an_order_of_its_own() -> None:
    """Neighbours match the messages of a copy by order: here rank 1 takes micro-batches 1 and 3 the other way round."""
    rows = [np.array(schedules.actions("dualpipe", 2, 2, 4).rank_actions(rank)) for rank in range(2)]
    odd = rows[1][:, 2] % 2 == 1
    rows[1][odd, 2] = 4 - rows[1][odd, 2]
    with pytest.raises(InvalidTableError, match="message order"):
        check(ActionTable.of("swapped", two_way_placement(2), rows, micro_batches=4))


@pytest.mark.parametrize(("column", "value"), [("kind", 4), ("chunk", -1), ("micro_batch", 2), ("slice", 1)])
def test_values_outside_the_table_are_refused(column: str, value: int) -> None:
    """A kind, chunk, micro-batch or slice that the table does not have is named with its range."""
    rows = np.array([(0, 0, 0, 0), (0, 0, 1, 0), (1, 0, 0, 0), (1, 0, 1, 0)])
    rows[0, ("kind", "chunk", "micro_batch", "slice").index(column)] = value
    table = ActionTable.of("hand-made", looped_placement(1, 1), [rows], micro_batches=2)
    with pytest.raises(InvalidTableError, match=f"{column} of action 0 must be in 0.*got {value}"):
        check(table)


def test_a_deadlock_names_who_waits_for_what() -> None:
    """The message tells the rank, its action and the action it waits for."""
    expected = "2 ranks wait for ever; rank 0 at BACKWARD of chunk 0, micro-batch 0, .* BACKWARD of rank 1"
    with pytest.raises(InvalidTableError, match=expected):
        check(table_of("F0 B0 F1 B1", "F0 F1 B0 B1"))


@pytest.mark.parametrize("seed", range(20))
def test_two_swapped_micro_batches_of_a_chunk_break_a_rule(seed: int) -> None:
    """No rank can change the order of its forwards, or backwards, of a chunk alone."""
    rng = np.random.default_rng(seed)
    table = schedules.actions("interleaved", 4, 2, 8)
    rows = [np.array(table.rank_actions(rank)) for rank in range(4)]
    mine = rows[rng.integers(4)]
    alike = np.flatnonzero((mine[:, 0] == rng.integers(2)) & (mine[:, 1] == rng.integers(2)))
    first, second = rng.choice(alike, size=2, replace=False)
    mine[[first, second]] = mine[[second, first]]
    with pytest.raises(InvalidTableError, match="forward before backward|message order"):
        check(ActionTable.of("swapped", table.placement, rows, micro_batches=8))

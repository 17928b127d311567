import re
from pathlib import Path

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.errors import IllegalScheduleError, InvalidTableError, ScheduleError
from cost_models.schedules.live import peak_live
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import ActionTable, Kind
from cost_models.schedules.user_table import UserSchedule, parse, read
from tests.cost_models.schedules.cases import ALL, equal_times, random_times

ZERO_BUBBLE_V = """0F0,,,,3F0,3I0,3W0,,0F1,0I0,0W0,3F1,3B1,0B1
1F0,,2F0,,,,2I0,1I0,2W0,1F1,1W0,2F1,2B1,1B1
"""
SPLIT = "0F0,0F1,0I0,0W0,0B1\n1F0,1I0,1F1,1W0,1B1\n"


def printed(table: ActionTable) -> str:
    """A table in the CSV form, idle cells here and there."""
    stage_of, letters = table.placement.stage_of(), "FBIW"
    rows = [
        ",,".join(f"{stage_of[rank, chunk]}{letters[kind]}{j}" for kind, chunk, j, _ in table.rank_actions(rank))
        for rank in range(table.ranks)
    ]
    return "\n".join(rows) + "\n"


@pytest.mark.parametrize(("name", "p", "v", "m"), [case for case in ALL if case[0] in ("1f1b", "interleaved")])
def test_a_printed_schedule_is_read_back(name: str, p: int, v: int, m: int) -> None:
    """Actions, placement and links are those of the schedule it was printed from."""
    table = schedules.actions(name, p, v, m)
    again = parse(printed(table))
    for column in ("rank_start", "kind", "chunk", "micro_batch", "slice"):
        assert np.array_equal(getattr(again, column), getattr(table, column))
    for column in ("rank", "chunk", "link"):
        assert np.array_equal(getattr(again.placement, column), getattr(table.placement, column))
    times = random_times(np.random.default_rng(29), p, v, batch=20)
    assert np.array_equal(simulate(again, times).span_s, simulate(table, times).span_s)


def test_split_backwards_and_a_v_placement_are_read_off() -> None:
    """I and W are input and weight gradients; stage 3 lies on rank 0 because its row runs it."""
    table = parse(ZERO_BUBBLE_V)
    assert (table.ranks, table.chunks, table.micro_batches) == (2, 2, 2)
    assert table.placement.rank.tolist() == [0, 1, 1, 0]
    assert table.placement.chunk.tolist() == [0, 0, 1, 1]
    assert table.placement.link.tolist() == [0, 2, 1]
    assert table.rank_actions(1)[3] == (Kind.INPUT_GRAD, 0, 0, 0)
    assert peak_live(table).tolist() == [2, 2]


def test_overlapped_pairs_and_communication_are_understood() -> None:
    """An overlapped forward and backward run one after the other; sends and gathers follow from the order."""
    plain = parse("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1\n")
    full = parse("0UNSHARD,0F0,0SEND_F0,0F1,0RECV_B0,0B0,0B1,0REDUCE_GRAD\n1F0,(1B0;1F1)OVERLAP_F_B,1B1,1RESHARD\n\n")
    assert np.array_equal(full.kind, plain.kind)
    assert np.array_equal(full.micro_batch, plain.micro_batch)


@pytest.mark.parametrize(
    ("text", "rule", "message"),
    [
        ("", "cells", "must have a row for each rank, got none"),
        ("\n\n,,\n", "cells", "must have a row for each rank, got none"),
        ("0F0,0B0\n\n1F0,1B0", "cells", "row 2 must have an action, got none"),
        ("0F0,0B0\n1F0,1X0", "cells", "row 2, cell 2 must be .* got '1X0'"),
        ("0F0,0B", "cells", "row 1, cell 2 must be .* got '0B'"),
        ("0F0,-1B0", "cells", "row 1, cell 2 must be .* got '-1B0'"),
        ("0F0,0B0,(0F1;0Q1)OVERLAP_F_B", "cells", "row 1, cell 3 must be .* got '0Q1'"),
        ("rank,action\n0,F", "cells", "row 1, cell 1 must be .* got 'rank'"),
        ("0F0,0B999999999", "cells", "row 1, cell 2: stage and micro-batch must be under 1, got '0B999999999'"),
        ("0F0,0B9999999999999", "cells", "row 1, cell 2 must be .* got '0B9999999999999'"),
        ("٠F0,0B0", "cells", "row 1, cell 1 must be"),
        ('0F0,"0B0', "cells", "the table is not CSV"),
        ("0F0,0B0,0F1,0B1\n0F0,0B0,1F0,1B0", "placement", "stage 0 must be in one row, got rows 1 and 2"),
        ("0F0,0B0\n2F0,2B0,,", "placement", "stages must be 0 to 1, got no stage 1 but 2"),
        ("0F0,0B0,1F0,1B0\n2F0,2B0", "placement", "rows must hold equally many stages, got 2, 1"),
        ("0F0,0B0\n2F0,2B0\n1F0,1B0\n3F0,3B0", "placement", "stages 0 and 1 must be .* got rows 1 and 3"),
        ("0F0,0B0,0F3,0B3\n1F0,1B0,1F1,1B1", "exactly once", "rank 0, chunk 0, micro-batch 1"),
        ("0F0,0B0,,,,,,,\n1F0,1B5,,,,,,,", "exactly once", "2 stages and 6 micro-batches need more than 4 actions"),
        ("0B0,0F0", "forward before backward", "rank 0, chunk 0, micro-batch 0"),
        ("0F0,0F1,0B0,0B1\n1F1,1B1,1F0,1B0", "message order", "rank 1, chunk 0"),
        ("0F0,0B0,0F1,0B1\n1F0,1F1,1B0,1B1", "no deadlock", "rank 0 at BACKWARD of chunk 0, micro-batch 0"),
    ],
)
def test_malformed_tables_are_refused_by_row_and_cell(text: str, rule: str, message: str) -> None:
    """Whatever is wrong, the message says where; nothing is guessed."""
    with pytest.raises(InvalidTableError, match=message) as caught:
        parse(text)
    assert caught.value.rule == rule


def refusal(text: str) -> str:
    """Why a table is refused, or "none"."""
    try:
        parse(text)
    except ScheduleError as error:
        return str(error)
    return "none"


@pytest.mark.parametrize("seed", range(30))
def test_no_text_gives_any_other_error(seed: int) -> None:
    """Good tables with characters changed, dropped and doubled."""
    rng = np.random.default_rng(seed)
    for _ in range(20):
        text = list(ZERO_BUBBLE_V)
        for _ in range(rng.integers(1, 5)):
            at = int(rng.integers(len(text)))
            text[at] = str(rng.choice(["", "0", "9", "F", ",", "\n", '"', ";", "(", "\x00", text[at] * 2]))
        assert re.search(r"row|rank|not CSV|stages|none", refusal("".join(text)))


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    """Missing, a folder, or no text."""
    (tmp_path / "binary.csv").write_bytes(b"\xff\xfe0F0")
    for name in ("missing.csv", ".", "binary.csv"):
        with pytest.raises(IllegalScheduleError, match=f"schedule table {re.escape(str(tmp_path / name))} cannot be"):
            read(tmp_path / name)


def test_a_table_is_a_schedule_for_its_own_sizes(tmp_path: Path) -> None:
    """It has the members of every schedule, and refuses others' sizes."""
    path = tmp_path / "mine.csv"
    path.write_text(ZERO_BUBBLE_V)
    own: schedules.Schedule = read(path)
    assert own.NAME == "user"
    assert own.legal(2, 2, np.array([1, 2, 3])).tolist() == [False, True, False]
    table = own.actions(2, 2, 2)
    times = equal_times(2, 2, 1, 1, 1)
    assert own.closed_form_s(2, times) == own.lower_bound_s(np.array([2]), times) == simulate(table, times).span_s
    with pytest.raises(IllegalScheduleError, match="user needs ranks 2, chunks 2 and micro-batches 2; got ranks 4"):
        own.actions(4, 2, 2)
    with pytest.raises(IllegalScheduleError, match="micro-batches 3"):
        own.lower_bound_s(3, times)


@pytest.mark.parametrize("text", [SPLIT, ZERO_BUBBLE_V, printed(schedules.actions("interleaved", 3, 2, 6))])
def test_no_bound_is_above_the_replay(text: str) -> None:
    """In thousands of random cases; the terms of whole backwards are those of the schedules that have them."""
    own = UserSchedule(parse(text))
    times = random_times(np.random.default_rng(30), own.table.ranks, own.table.chunks, batch=3000)
    m = own.table.micro_batches
    span_s, terms_s = simulate(own.table, times).span_s, own.bound_terms(m, times).value_s()
    assert np.array_equal(own.lower_bound_s(m, times), span_s)
    assert np.all(terms_s <= span_s * (1 + 1e-12))
    assert np.all(terms_s > 0)

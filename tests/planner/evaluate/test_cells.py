"""Cells, notes, and what is told of values that nobody gave."""

import pytest

from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError

NOTES = "task=pretrain; zero1 group=8; sharding: FSDP; free text; INFERRED{seq_len=2048,recompute=selective:op}"


def test_a_filled_cell_comes_before_its_note():
    """Values that notes infer fill empty cells only, and are told."""
    cells = Cells({"seq_len": "4096", "recompute": "", "notes": NOTES})
    assert cells.whole("seq_len") == 4096
    assert cells.text("recompute") == "selective:op"
    assert cells.assumed == ["recompute=selective:op (inferred in notes)"]


def test_notes_are_pairs():
    """A note is a key and a value between semicolons; words are found anywhere in the notes."""
    cells = Cells({"notes": NOTES})
    assert [cells.note(key) for key in ("task", "zero1 group", "sharding", "seq_len")] == ["pretrain", "8", "FSDP", ""]
    assert cells.says("Free Text")
    assert not cells.says("overlap off")


@pytest.mark.parametrize("text", ["", "-", "NaN", " none given "])
def test_unknown_cells_are_empty(text):
    """What stands for an unknown value in a table reads as nothing."""
    assert Cells({"tp": text}).whole("tp") is None


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "two", "inf", "1e30"])
def test_counts_are_whole_and_positive(text):
    """A count that is not a whole number in range names its column and its text."""
    with pytest.raises(InvalidRunError, match="tp must be"):
        Cells({"tp": text}).whole("tp")

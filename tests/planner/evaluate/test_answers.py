"""Tables in, tables out."""

import csv
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import RequestError
from planner.evaluate.answers import COLUMNS, answers, read_rows, write_answers
from tests.planner.evaluate.rows import GPT, LLAMA, MIXTRAL

ROWS = [LLAMA, GPT, MIXTRAL, {**LLAMA, "id": "d-1", "n_gpus": "63"}, {**LLAMA, "id": "e-1", "notes": "task=lora"}]


def test_every_row_has_an_answer(tmp_path):
    """A written table has a line for each row, in order, with the contract's columns and figures that agree."""
    found = answers(ROWS)
    write_answers(found, tmp_path / "out.csv")
    with open(tmp_path / "out.csv", newline="") as file:
        lines = list(csv.DictReader(file))
    assert tuple(lines[0]) == COLUMNS
    assert [line["id"] for line in lines] == [row["id"] for row in ROWS]
    assert [line["status"] for line in lines] == ["ok", "ok", "ok", "invalid", "unsupported"]
    for line in lines[:3]:
        step, low, high = (float(line[f"predicted_step_time{end}_s"]) for end in ("", "_low", "_high"))
        assert low < step < high
        assert line["fits"] in ("yes", "borderline", "no")
        assert float(line["predicted_peak_reserved_gib"]) >= float(line["predicted_peak_allocated_gib"])
    tokens = 128 * 8192 / 64 / float(lines[0]["predicted_step_time_s"])
    assert float(lines[0]["predicted_tokens_per_s_per_gpu"]) == pytest.approx(tokens, rel=1e-8)
    assert all(not lines[3][name] for name in COLUMNS[2:-1])
    assert "n_gpus" in lines[3]["message"]


def test_recompute_is_assumed_only_where_it_is_needed():
    """A run that says nothing of recompute has none if it fits, else as many layers as it takes, and says which."""
    row = {**LLAMA, "recompute": "", "tp": "1", "pp": "1"}
    small, large = answers([row, {**row, "micro_batch": "2", "seq_len": "16384"}])
    assert "recompute=none" in small.message
    assert "recompute=full on" in large.message
    assert large.fits != "no"


def test_sharding_is_assumed_as_far_as_it_is_needed():
    """A run that says nothing of sharding and does not fit as usual shards more; one that says so does not."""
    row = {**LLAMA, "model": "LLAMA3-70B", "tp": "1", "pp": "1", "recompute": "full", "zero_or_fsdp": ""}
    open_answer, said = answers([row, {**row, "zero_or_fsdp": "1"}])
    assert "zero_or_fsdp=3 (assumed: the least that fits)" in open_answer.message
    assert open_answer.fits == "yes"
    assert said.fits == "no"


def test_fixed_segments_need_more_to_spare():
    """A run whose allocator cannot join blocks is sure to fit only at a lower share of the memory."""
    answer = answers([{**LLAMA, "recompute": "full"}])[0]
    assert answer.run is not None
    assert answer.costs is not None
    usable = answer.run.cluster.gpu.usable_memory_bytes
    for growing, share, verdict in ((True, 0.9, "yes"), (False, 0.9, "borderline"), (False, 0.8, "yes")):
        run = replace(answer.run, recipe=answer.run.recipe.replaced(growing_segments=growing))
        costs = replace(answer.costs, device_bytes=share * usable)
        assert replace(answer, run=run, costs=costs).fits == verdict


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from([*LLAMA, "ep", "etp", "vpp", "n_layers", "hidden", "ffn", "vocab", "schedule", "stage_layers"]),
        st.one_of(st.sampled_from(["", "0", "-1", "7", "1e9", "nan", "x", "3.5", "99999999999"]), st.text(max_size=5)),
        max_size=4,
    )
)
def test_no_row_is_a_crash(changes):
    """Whatever stands in the cells, the row has an answer with a status."""
    answer = answers([{**LLAMA, **changes}])[0]
    assert answer.status in ("ok", "unsupported", "invalid")
    assert answer.status == "ok" or answer.message


def test_files_that_are_no_tables(tmp_path):
    """A missing file, an empty one, a folder: one message each."""
    (tmp_path / "empty.csv").write_text("")
    for name in ("missing.csv", "empty.csv", "."):
        with pytest.raises(RequestError):
            read_rows(tmp_path / name)
    with pytest.raises(RequestError, match="cannot write"):
        write_answers([], tmp_path / "no folder" / "out.csv")

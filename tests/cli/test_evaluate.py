"""`plan evaluate` and `plan recipes`."""

import csv
import json

import pytest

from cli.main import run
from cost_models.specs.catalog import names

HEADING = "id,model,gpu,n_gpus,seq_len,global_batch_seqs,micro_batch,tp,pp,recompute,step_time_s,peak_mem_gib\n"
ROWS = """x-1,llama3-8b,H100,8,8192,64,1,1,1,full,20,60
x-2,llama3-8b,H100,8,8192,64,1,3,1,none,,
y-1,nobody,H100,8,,,,,,,,
"""


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / "runs.csv"
    path.write_text(HEADING + ROWS)
    return path


def test_answers_are_written_and_errors_printed(runs, tmp_path, capsys):
    """A line for each row in the file; errors by source and the count of verdicts on stdout."""
    out = tmp_path / "out.csv"
    assert run(["evaluate", str(runs), "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "3 rows: 1 ok, 1 unsupported, 1 invalid" in printed
    assert "step time" in printed
    assert "peak memory" in printed
    assert "fits: 1 right" in printed
    with open(out, newline="") as file:
        assert [line["status"] for line in csv.DictReader(file)] == ["ok", "invalid", "unsupported"]


def test_statistics_as_json(runs, tmp_path, capsys):
    """--json prints the same statistics, by source."""
    assert run(["evaluate", str(runs), "--out", str(tmp_path / "out.csv"), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["ok"], told["unsupported"], told["invalid"]) == (3, 1, 1, 1)
    assert told["step_time"]["x"]["count"] == told["peak_memory"]["x"]["count"] == 1
    assert told["ranking"] is None


@pytest.mark.parametrize("arguments", [["missing.csv", "--out", "out.csv"], ["runs.csv"]])
def test_a_wrong_call_is_told(arguments, tmp_path, monkeypatch, capsys):
    """A file that is not there and a missing --out are bad input, told as JSON where that was asked for."""
    monkeypatch.chdir(tmp_path)
    assert run(["evaluate", *arguments, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


def test_recipes_are_listed(capsys):
    """Every recipe of the catalog is a line, and whole as JSON."""
    assert run(["recipes"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in names("frameworks"))
    assert run(["recipes", "--json"]) == 0
    assert [recipe["name"] for recipe in json.loads(capsys.readouterr().out)["recipes"]] == names("frameworks")

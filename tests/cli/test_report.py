"""`--report` through the command line, in this process."""

import json
from pathlib import Path
from typing import Any, NoReturn

import pytest

from cli.main import run
from planner.document import read
from planner.report import jinja
from tests.golden.jobs import JOBS
from tests.planner.html.cases import taken_apart

PLAN = str(next(job.path for job in JOBS if job.name == "llama3-8b_8"))
SMALL = ["--model", "llama3.2-1b", "--gpu", "h100-sxm", "--seq-len", "2k", "--global-batch", "8"]
FLAGS = {
    "planning": [*SMALL, "--gpus", "2"],
    "show": ["show", PLAN],
    "question": [*SMALL, "--min-gpus"],
    "upgrades": [*SMALL, "--gpus", "8", "--one-more-node"],
    "study": ["what-if", *SMALL, "--sweep", "gpus=1,2"],
}


def refuse(*_: Any, **__: Any) -> NoReturn:
    """Stands for a search that must not begin."""
    message = "the search began"
    raise AssertionError(message)


def test_a_plan_is_shown_as_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The page holds the document; the report goes to stdout as without it."""
    assert run(["show", PLAN]) == 0
    without = capsys.readouterr().out
    assert run(["show", PLAN, "--report", str(tmp_path / "out.html")]) == 0
    assert capsys.readouterr().out == without
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert json.loads(taken_apart(page).scripts[0][1]) == json.loads(Path(PLAN).read_text(encoding="utf-8"))
    assert [path.name for path in tmp_path.iterdir()] == ["out.html"]


def test_planning_writes_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of the plan that it prints, with what the run comes to where that is asked for."""
    flags = ["--report", str(tmp_path / "out.html"), "--output", str(tmp_path / "plan.json"), "--tokens", "1B"]
    assert run([*FLAGS["planning"], *flags]) == 0
    page = (tmp_path / "out.html").read_text(encoding="utf-8")
    assert f'value="{read(tmp_path / "plan.json").predicted.step_time_s:.9g}"' in page
    assert "The whole run" in page
    assert "GPU-hours" in page
    assert capsys.readouterr().err == ""


def test_nothing_fits_on_a_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By how much, and what fills the GPU; the exit code is still 1."""
    monkeypatch.setattr("planner.remedies.of_infeasible", lambda *_: ())
    out = tmp_path / "out.html"
    assert run(["--model", "llama3.1-405b", "--gpus", "1", "--mem", "80GB", "--report", str(out)]) == 1
    page = out.read_text(encoding="utf-8")
    told = capsys.readouterr().err
    needed = told.partition("still needs ")[2].partition(" GiB")[0]
    assert "Nothing fits" in page
    assert needed
    assert "times what there is" in page
    assert "moments" in page


def test_a_study_and_questions_have_pages(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Every scenario a row; a question's frontier above its plan; an upgrade beside the plan as it is."""
    for name in ("study", "question", "upgrades"):
        out = tmp_path / f"{name}.html"
        more = ["--jobs", "1", *(["--keep", "off"] if name == "study" else [])]
        assert run([*FLAGS[name], *more, "--report", str(out)]) in (0, 1)
        page = out.read_text(encoding="utf-8")
        assert (taken_apart(page).wrong, taken_apart(page).unclosed) == ([], [])
    assert 'id="scenario-1"' in (tmp_path / "study.html").read_text(encoding="utf-8")
    assert 'id="frontier"' in (tmp_path / "question.html").read_text(encoding="utf-8")
    assert "as it is" in (tmp_path / "upgrades.html").read_text(encoding="utf-8")
    capsys.readouterr()


@pytest.mark.parametrize("name", FLAGS)
def test_what_stands_in_the_way_is_told_before_the_search(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that is not there, a folder in place of a file, jinja2 that is missing: exit code 2, one line."""
    for search in ("planner.mixed.plan_groups", "planner.capacity.min_gpus", "planner.study.run.answered"):
        monkeypatch.setattr(search, refuse)
    for path, reason in (("/no/such/folder/out.html", "there is no folder"), (str(tmp_path), "it is a directory")):
        assert run([*FLAGS[name], "--report", path]) == 2
        assert f"plan: cannot write {path}: {reason}" in capsys.readouterr().err
    monkeypatch.setattr(jinja, "find_spec", lambda _: None)
    assert run([*FLAGS[name], "--report", str(tmp_path / "out.html")]) == 2
    assert capsys.readouterr().err == "plan: --report needs jinja2: pip install 'meshplan[report]'\n"
    assert list(tmp_path.iterdir()) == []

"""The verbs through the command line, in this process; the search is replaced by one that answers at once."""

import io
import json
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from cli.progress import line, live_line
from planner.document import PlanDocument, dumps, read
from planner.errors import InfeasibleError, Interrupted, LimitReached, RequestError
from planner.request import PlanRequest, Progress
from tests.planner.sample import sample_document

PLAN = ["--model", "llama3-70b", "--gpus", "256", "--mem", "80GB"]

Search = Callable[[PlanRequest, Any], PlanDocument]


@pytest.fixture
def searching(monkeypatch: pytest.MonkeyPatch) -> Callable[[Search], None]:
    """Puts a function in the place of planner.search.plan."""

    def replace(search: Search) -> None:
        module = types.ModuleType("planner.search")
        module.plan = search  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "planner.search", module)

    replace(lambda request, progress, jobs: sample_document())
    remedies = types.ModuleType("planner.remedies")
    remedies.of_infeasible = lambda request, progress: ()  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "planner.remedies", remedies)
    return replace


def raising(error: BaseException) -> Search:
    """A search that ends in an error."""

    def search(request: PlanRequest, progress: object, jobs: int) -> PlanDocument:
        raise error

    return search


@pytest.mark.usefixtures("searching")
def test_planning_prints_the_report(capsys: pytest.CaptureFixture[str]) -> None:
    """The result goes to stdout, nothing to stderr when that is no terminal."""
    assert run(PLAN) == 0
    out, err = capsys.readouterr()
    assert "TP 4 + SP, PP 4 x VPP 5, DP 16 (ZeRO 1)" in out
    assert err == ""


@pytest.mark.usefixtures("searching")
def test_planning_prints_and_writes_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--json prints the bytes that -o writes; --stats goes elsewhere and never into the document."""
    plan, stats = tmp_path / "plan.json", tmp_path / "stats.json"
    assert run([*PLAN, "--json", "-o", str(plan), "--stats", str(stats)]) == 0
    assert capsys.readouterr().out == plan.read_text() == dumps(sample_document())
    assert read(plan).parallelism == sample_document().parallelism
    facts = json.loads(stats.read_text())
    assert facts["search_wall_time_s"] >= 0
    assert {"python", "platform", "cpus", "peak_resident_bytes", "cpu_time_s"} <= facts.keys()


def test_flags_reach_the_request(searching: Callable[[Search], None]) -> None:
    """Every flag of planning changes the request that the search gets."""
    asked: list[PlanRequest] = []

    def search(request: PlanRequest, progress: object, jobs: int) -> PlanDocument:
        asked.append(request)
        return sample_document()

    searching(search)
    flags = (
        "--model llama3-8b --nodes 2 --gpus-per-node 4 --gpu h100 --mem 60GB --seq-len 4k --global-batch 64 "
        "--recipe megatron --schedule 1f1b --gap 0.01 --time-limit 30 --top-k 3 --set model.layers=4 --set "
        "recipe.flash_attention=false"
    )
    assert run(flags.split()) == 0
    assert run(["--model", "llama3-8b", "--cluster", "dgx-a100", "--gpus", "8", "--global-batch-tokens", "1M"]) == 0
    first, second = asked
    assert (first.model.name, first.model.layers) == ("llama3-8b", 4)
    assert (first.cluster.gpus, first.cluster.gpus_per_node, first.capacity_bytes) == (8, 4, 60e9)
    assert (first.workload.seq_len, first.workload.global_batch) == (4096, 64)
    assert (first.schedules, first.gap, first.time_limit_s, first.top_k) == (("1f1b",), 0.01, 30, 3)
    assert not first.recipe.flash_attention
    assert (second.cluster.name, second.workload.tokens) == ("dgx-a100", 2**20)


ENDINGS = [
    (InfeasibleError("stage 0 needs 91.0 GiB of 79.1 GiB", "full recompute fits"), 1, "infeasible"),
    (RequestError("--schedule must be one of 1f1b, gpipe, got 'x'"), 2, "input"),
    (Interrupted(None), 130, "interrupted"),
    (KeyboardInterrupt(), 130, "interrupted"),
]


@pytest.mark.parametrize(("error", "code", "kind"), ENDINGS, ids=[kind for *_, kind in ENDINGS])
def test_a_search_without_a_plan_is_told(
    searching: Callable[[Search], None],
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
    kind: str,
) -> None:
    """The exit code says how it ended; the reason is on stderr, or on stdout as JSON."""
    searching(raising(error))
    assert run(PLAN) == code
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"plan: {error}" if str(error) else "plan: interrupted")
    assert run([*PLAN, "--json"]) == code
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]
    assert (told["kind"], told["exit_code"], err) == (kind, code, "")
    if isinstance(error, InfeasibleError):
        assert told["messages"] == list(error.messages)


@pytest.mark.parametrize(
    ("error", "code"),
    [(LimitReached(sample_document(), "the time limit was reached"), 4), (Interrupted(sample_document()), 130)],
)
def test_the_best_so_far_is_printed(
    searching: Callable[[Search], None],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    error: BaseException,
    code: int,
) -> None:
    """A search that was stopped prints and writes what it has, and warns on stderr."""
    searching(raising(error))
    assert run([*PLAN, "--json", "-o", str(tmp_path / "plan.json")]) == code
    out, err = capsys.readouterr()
    assert out == dumps(sample_document()) == (tmp_path / "plan.json").read_text()
    assert err == f"plan: {error}; this is the best plan so far\n"


WRONG = [
    ([], "input", "the model is missing: give --model NAME"),
    (["--model", "llama3-70b", "--gpus", "0", "--mem", "80GB"], "input", "--gpus must be"),
    (["--model", "llama3-70b", "--gpus", "-3", "--mem", "80GB"], "input", "got '-3'"),
    (["--model", "llama3-70b", "--gpus", str(10**15), "--mem", "80GB"], "input", "from 1 to 10000000"),
    (["--model", "llama3-70b", "--gpus", "eight", "--mem", "80GB"], "input", "got 'eight'"),
    (["--model", "llama3-70b", "--gpus", "8", "--mem", "80Gb"], "input", "did you mean '80GB'?"),
    (["--model", "llama3-70", "--gpus", "8", "--mem", "80GB"], "input", "did you mean 'llama3-70b'"),
    (["--gap", "none"], "usage", "--gap"),
    (["--modle", "llama3-70b"], "usage", "--model"),
    (["modles"], "usage", "models"),
    (["llama3-70b"], "usage", "No such command"),
    (["--model", "llama3-70b", "show", "plan.json"], "usage", "--model before 'show' has no effect"),
    (["show"], "usage", "FILE"),
    (["show", "none.json"], "document", "cannot read none.json"),
    (["show", "/"], "document", "is a directory"),
    ([*PLAN, "-o", "/none/plan.json"], "document", "cannot write /none/plan.json"),
    ([*PLAN, "--stats", "/"], "document", "cannot write /: it is a directory"),
]


@pytest.mark.usefixtures("searching")
@pytest.mark.parametrize(("arguments", "kind", "message"), WRONG, ids=[" ".join(case[0]) for case in WRONG])
def test_bad_input_is_one_message(
    capsys: pytest.CaptureFixture[str], arguments: list[str], kind: str, message: str
) -> None:
    """Exit code 2, one message on stderr and no traceback; with --json one JSON error on stdout."""
    assert run(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("plan: ") == 1
    assert message in err
    assert "Traceback" not in err
    assert run([*arguments, "--json"]) == 2
    out, err = capsys.readouterr()
    told = json.loads(out)["error"]
    assert message in told["message"]
    assert (told["kind"], told["exit_code"], err) == (kind, 2, "")


def test_show_prints_what_planning_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A document shows the same from a file and from standard input, as report and as JSON."""
    path = tmp_path / "plan.json"
    path.write_text(dumps(sample_document()))
    assert run(["show", str(path)]) == 0
    report = capsys.readouterr().out
    assert "optimal within 0.31 %" in report
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(path.read_bytes())))
    assert run(["show", "-", "--json"]) == 0
    assert capsys.readouterr().out == path.read_text()


def test_a_newer_document_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A plan of a later version is not misread."""
    path = tmp_path / "plan.json"
    path.write_text(dumps(sample_document()).replace('"schema_version": 1', '"schema_version": 2'))
    assert run(["show", str(path)]) == 2
    assert "was written by schema 2, this tool reads up to 1" in capsys.readouterr().err


@pytest.mark.parametrize("width", ["80", "100"])
@pytest.mark.parametrize(("verb", "name"), [("models", "llama3-70b"), ("gpus", "h100-sxm"), ("clusters", "dgx-h100")])
def test_listings_name_the_catalog(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, verb: str, name: str, width: str
) -> None:
    """A table for people fits its window and names what the JSON for programs holds in full."""
    monkeypatch.setenv("COLUMNS", width)
    assert run([verb]) == 0
    table = capsys.readouterr().out
    assert name in table
    assert "…" not in table
    assert max(map(len, table.splitlines())) <= int(width)
    assert run([verb, "--json"]) == 0
    entries = json.loads(capsys.readouterr().out)[verb]
    assert name in [entry["name"] for entry in entries]


def test_progress_is_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The live line appears on a terminal, and not in a pipe, in CI or on a dumb terminal."""

    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    def has_line() -> bool:
        with live_line() as progress:
            return progress is not None

    for name in ("CI", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert has_line()
    monkeypatch.setenv("CI", "true")
    assert not has_line()
    monkeypatch.delenv("CI")
    monkeypatch.setenv("TERM", "dumb")
    assert not has_line()
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert not has_line()


def test_the_live_line_tells_how_good_the_best_is() -> None:
    """Layouts seen, best step and how much faster any other could be."""
    assert line(Progress(3, 1184, None, None)) == "3 of 1,184 layouts"
    assert line(Progress(3, 1184, 15.62, None)) == "3 of 1,184 layouts, best 15.62 s"
    expected = "3 of 1,184 layouts, best 15.62 s, at most 10.0 % faster possible"
    assert line(Progress(3, 1184, 15.62, 15.62 * 0.9)) == expected

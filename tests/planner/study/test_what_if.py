"""Studies: each scenario as `plan` alone, each once, kept when finished, on the front where none is better."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from joblib import register_parallel_backend
from joblib._parallel_backends import ThreadingBackend

from planner.document import dumps
from planner.document.files import rounded
from planner.economics import Economy
from planner.errors import DocumentError, InfeasibleError, Interrupted, PlannerError, RequestError
from planner.request import PlanRequest, build_request
from planner.search import plan
from planner.study import run
from planner.study.answers import Answer, Kept, answered, digest_of
from planner.study.files import dumps_study, frame, loads_study, needs_parquet, write_csv
from planner.study.result import Study
from planner.study.run import WhatIf, what_if
from planner.study.sweep import axes_of, scenarios

SMALL: dict[str, Any] = {"model": "llama3.2-1b", "gpu": "h100-sxm", "global_batch": "48", "seq_len": "2k"}
BIG: dict[str, Any] = {"model": "llama3-70b", "gpu": "h100-sxm", "global_batch": "64", "seq_len": "4k"}


def alone(keywords: dict[str, Any]) -> str:
    """The document of one scenario, planned by itself; empty where nothing fits."""
    try:
        return dumps(plan(build_request(**keywords)))
    except InfeasibleError:
        return ""


def counted(monkeypatch: pytest.MonkeyPatch, stop_after: int | None = None) -> list[PlanRequest]:
    """The requests that are planned from now on; Ctrl-C comes after so many."""
    asked: list[PlanRequest] = []

    def count(request: PlanRequest) -> Answer:
        if len(asked) == stop_after:
            raise KeyboardInterrupt
        asked.append(request)
        return answered(request)

    monkeypatch.setattr(run, "answered", count)
    return asked


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_every_answer_is_that_of_plan_alone(jobs: int) -> None:
    """Byte for byte, also with idle GPUs, a short memory, offload, and where nothing fits or nothing can be asked."""
    axes = axes_of(["gpus=1,3", "mem=80GB,12GB,2GB", "precision=bf16,int8"])
    flags = SMALL | {"schedule": "1f1b"}  # the search that finds nothing is then a short one
    found = what_if(flags, axes, jobs=jobs)
    ended = set()
    for number, (inputs, keywords) in enumerate(scenarios(axes, flags)):
        scenario = found.study.scenarios[number]
        assert dict(scenario.inputs) == inputs
        ended.add(scenario.status)
        if inputs["precision"] == "int8":
            assert scenario.status == "invalid"
            assert "--precision must be one of bf16, fp8, got 'int8'" in scenario.reasons[0]
            continue
        assert found.text(number) == alone(keywords)
        assert (scenario.status == "planned") == bool(found.text(number))
        assert bool(scenario.reasons) == (scenario.plan is None)
    assert ended == {"planned", "infeasible", "invalid"}


@pytest.mark.slow
def test_big_jobs_are_planned_as_alone_in_any_order() -> None:
    """Two processes share out a study of 70B; what a process planned before changes nothing."""
    axes = axes_of(["gpus=64,128", "mem=80GB,141GB"])
    found = what_if(BIG, axes, jobs=2)
    for number, (_, keywords) in enumerate(scenarios(axes, BIG)):
        assert found.text(number) == alone(keywords)


def test_equal_scenarios_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """8k and 8192 are one job: both have its answer."""
    asked = counted(monkeypatch)
    found = what_if(SMALL | {"gpus": 2}, axes_of(["seq-len=2k,2048,1k"]))
    assert len(asked) == 2
    first, second, third = found.study.scenarios
    assert first.digest == second.digest != third.digest
    assert first.plan == second.plan != third.plan


def test_a_study_goes_on_where_it_was_interrupted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What was finished is kept and not planned again; the result is that of a study that ran through."""
    axes = axes_of(["gpus=1,2,4,8"])
    counted(monkeypatch, stop_after=2)
    half = what_if(SMALL, axes, folder=tmp_path)
    assert half.interrupted
    assert sorted(each.status for each in half.study.scenarios) == ["open", "open", "planned", "planned"]
    rest = counted(monkeypatch)
    whole = what_if(SMALL, axes, folder=tmp_path)
    assert len(rest) == 2
    assert not whole.interrupted
    again = counted(monkeypatch)
    assert dumps_study(what_if(SMALL, axes, folder=tmp_path).study) == dumps_study(whole.study)
    assert again == []
    assert dumps_study(whole.study) == dumps_study(what_if(SMALL, axes).study)


def test_an_interrupt_within_a_search_is_no_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The search tells of Ctrl-C by an error of its own: nothing of it is kept."""

    def stopped(request: PlanRequest) -> None:
        raise Interrupted

    monkeypatch.setattr("planner.search.plan", stopped)
    found = what_if(SMALL, axes_of(["gpus=1,2"]), folder=tmp_path)
    assert found.interrupted
    assert [each.status for each in found.study.scenarios] == ["open", "open"]
    assert list(tmp_path.glob("*.json")) == []


def _end(digest: str, request: PlanRequest) -> None:
    """In another process: it is killed."""
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
def test_a_process_that_was_ended_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """In one sentence, with what may be the cause."""
    monkeypatch.setattr(run, "_of", _end)
    with pytest.raises(PlannerError, match="one of the 2 processes of --jobs was ended"):
        what_if(SMALL, axes_of(["gpus=1,2"]), jobs=2)


@pytest.mark.slow
def test_a_killed_study_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The process is killed after its first scenario: no entry is torn, the rest alone is planned."""
    code = (
        "from planner.study.run import what_if; from planner.study.sweep import axes_of; "
        f"what_if({SMALL!r}, axes_of(['gpus=1..32:+1']), folder={str(tmp_path)!r})"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    )
    deadline = time.monotonic() + 120
    while not list(tmp_path.glob("*.json")) and time.monotonic() < deadline:
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = len(list(tmp_path.glob("*.json")))
    assert 0 < kept < 32
    asked = counted(monkeypatch)
    found = what_if(SMALL, axes_of(["gpus=1..32:+1"]), folder=tmp_path)
    assert len(asked) == 32 - kept
    assert all(each.status == "planned" for each in found.study.scenarios)


@pytest.mark.parametrize("damage", [lambda text: text[:200], lambda text: text.replace("planned", "x"), lambda _: ""])
def test_a_damaged_entry_is_planned_again(damage: Any, tmp_path: Path) -> None:
    """A torn or changed file is no answer."""
    request = build_request(**SMALL, gpus=2)
    kept = Kept(tmp_path)
    kept.put(digest_of(request), answered(request))
    assert kept.get(digest_of(request)) == answered(request)
    (path,) = tmp_path.glob("*.json")
    path.write_text(damage(path.read_text(encoding="utf-8")), encoding="utf-8")
    assert kept.get(digest_of(request)) is None


def test_a_folder_that_cannot_be_is_told(tmp_path: Path) -> None:
    """Before anything is planned."""
    (tmp_path / "file").write_text("", encoding="utf-8")
    with pytest.raises(DocumentError, match="cannot keep scenarios in .*file: file exists"):
        what_if(SMALL, axes_of(["gpus=1"]), folder=tmp_path / "file")


def test_what_a_time_limit_stopped_is_not_kept(tmp_path: Path) -> None:
    """Another time it may come further."""
    found = what_if(SMALL | {"gpus": 8, "time_limit_s": 1e-9, "gap": 0.0}, axes_of(["top-k=3"]), folder=tmp_path)
    (only,) = found.study.scenarios
    assert only.status == "limit"
    assert only.plan is not None
    assert found.text(0)
    assert list(tmp_path.glob("*.json")) == []


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_back_end_that_is_not_installed_is_told(backend: Any, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the package to install."""
    for name in (package, f"{package}.util", f"{package}.util.joblib"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(RequestError, match=f"--backend {backend} needs the package {package}, which is not installed"):
        what_if(SMALL, axes_of(["gpus=1,2"]), backend=backend)


class AllAtOnce(ThreadingBackend):  # type: ignore[misc]
    """A back end that gives answers when all are there, as Ray's does."""

    supports_return_generator = False


def test_a_back_end_that_answers_all_at_once_is_asked_a_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answers are those of this process, and the progress is told in between."""
    monkeypatch.setattr(run, "_register", lambda backend: register_parallel_backend("ray", AllAtOnce))
    monkeypatch.setattr(run, "AT_ONCE", 1)
    told: list[int] = []
    axes = axes_of(["gpus=1,2", "mem=40GB,80GB"])
    found = what_if(SMALL, axes, jobs=2, backend="ray", progress=lambda each: told.append(each.finished))
    assert told == [0, 1, 2, 3, 4]
    alone = [what_if(SMALL, axes).text(number) for number in range(4)]
    assert [found.text(number) for number in range(4)] == alone
    everywhere = what_if(SMALL, axes, jobs=None, backend="ray")
    assert [everywhere.text(number) for number in range(4)] == alone


def test_ray_without_a_cluster_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Ray says, in one line."""

    def init(**_: Any) -> None:
        message = "no node answers at 10.0.0.1:6379\nmore of it"
        raise ConnectionError(message)

    ray = SimpleNamespace(is_initialized=lambda: False, init=init)
    joblib = SimpleNamespace(register_ray=lambda: None)
    for name, module in (("ray", ray), ("ray.util", SimpleNamespace(joblib=joblib)), ("ray.util.joblib", joblib)):
        monkeypatch.setitem(sys.modules, name, module)
    with pytest.raises(
        RequestError, match=r"cannot reach its cluster \(RAY_ADDRESS\): no node answers at 10.0.0.1:6379$"
    ):
        what_if(SMALL, axes_of(["gpus=1,2"]), backend="ray")


class Unreachable:
    """A Dask client of which there is none yet, and whose scheduler does not answer."""

    def __init__(self, address: str) -> None:
        message = f"timed out at {address}"
        raise OSError(message)

    @classmethod
    def current(cls) -> None:
        """As where no client was made."""
        message = "no client"
        raise ValueError(message)


@pytest.mark.parametrize(
    ("address", "told"),
    [
        (None, "needs a cluster to work on: set DASK_SCHEDULER_ADDRESS"),
        ("tcp://there:1", "cannot reach the scheduler at tcp://there:1 .*: timed out at tcp://there:1"),
    ],
)
def test_dask_without_a_cluster_is_told(address: str | None, told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of a scheduler comes from Dask's own settings: the command line has no client of its own."""
    config = SimpleNamespace(get=lambda name, default: address if name == "scheduler-address" else default)
    monkeypatch.setitem(sys.modules, "dask", SimpleNamespace(config=config))
    monkeypatch.setitem(sys.modules, "distributed", SimpleNamespace(Client=Unreachable))
    with pytest.raises(RequestError, match=told):
        what_if(SMALL, axes_of(["gpus=1,2"]), backend="dask")


def test_parquet_without_pyarrow_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the package to install."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(RequestError, match="--parquet needs the package pyarrow, which is not installed"):
        needs_parquet()


@pytest.fixture(scope="module")
def sweep() -> WhatIf:
    """A study of GPUs, memory and lengths with prices and a budget."""
    axes = axes_of(["gpus=1..6:+1", "mem=12GB,80GB", "seq-len=2k,4k"])
    economy = Economy.of(tokens="100B", days=30, price=2.5)
    return what_if(SMALL | {"global_batch": "64"}, axes, economy=economy)


def planned(study: Study) -> dict[tuple[str, ...], Any]:
    """Scenarios that have a plan, by their inputs."""
    return {each.inputs_of(study): each for each in study.planned}


def test_more_gpus_never_raise_the_step(sweep: WhatIf) -> None:
    """At one batch, idle GPUs allowed: beyond the gap of the searches no step is longer on one GPU more."""
    found = planned(sweep.study)
    pairs = [(key, (str(int(key[0]) + 1), *key[1:])) for key in found]
    pairs = [(fewer, more) for fewer, more in pairs if int(more[0]) <= 6]
    assert len(pairs) > 15
    for fewer, more in pairs:
        assert found[more].plan.step_time_s <= found[fewer].plan.step_time_s * (1 + 0.005 + 1e-9)


def test_more_memory_at_one_price_never_raises_the_cost(sweep: WhatIf) -> None:
    """Beyond the gap of the searches."""
    found = planned(sweep.study)
    pairs = [(key, (key[0], "80GB", key[2])) for key in found if key[1] == "12GB"]
    assert len(pairs) > 7
    for less, more in pairs:
        assert found[more].economics.cost_usd <= found[less].economics.cost_usd * (1 + 0.006)


def test_the_front_is_what_no_other_beats(sweep: WhatIf) -> None:
    """Against every pair of scenarios of one length: on the front is exactly what none beats in time and cost."""
    every = [each for each in sweep.study.planned if each.economics is not None]
    points = {each.number: (each.economics.days, each.economics.cost_usd) for each in every if each.economics}
    assert 2 < sum(each.pareto for each in every) < len(every)
    for each in every:
        rivals = [points[other.number] for other in every if other.inputs["seq-len"] == each.inputs["seq-len"]]
        own = points[each.number]
        beaten = any(one <= own[0] and two <= own[1] and (one, two) != own for one, two in rivals)
        assert each.pareto != beaten or not each.pareto  # of equals one is on it
        assert each.pareto or beaten or rivals.count(own) > 1
    assert sweep.best is not None
    assert sweep.best.economics is not None
    assert sweep.best.economics.cost_usd == min(cost for _, cost in points.values())


def test_a_study_is_read_back_as_it_was_written(sweep: WhatIf) -> None:
    """The JSON holds everything, to nine digits, and writing it again changes nothing."""
    text = dumps_study(sweep.study)
    assert dumps_study(loads_study(text)) == text
    assert json.loads(text)["scenarios"][0] == rounded(sweep.study.scenarios[0].model_dump(mode="json"))


def test_a_frame_has_a_row_for_each_scenario(sweep: WhatIf, tmp_path: Path) -> None:
    """With the swept inputs, the plan's figures and the run's; CSV reads back to the same numbers."""
    table = frame(sweep.study)
    assert list(table["scenario"]) == list(range(24))
    assert list(table["sweep:gpus"][:5]) == ["1"] * 4 + ["2"]
    first = next(sweep.study.planned)
    row = table.loc[first.number]
    assert first.plan is not None
    assert first.economics is not None
    assert row["step_time_s"] == first.plan.step_time_s
    assert row["tp"] == first.plan.parallelism.tp
    assert row["cost_usd"] == first.economics.cost_usd
    assert table["step_time_s"].isna().sum() == sum(each.plan is None for each in sweep.study.scenarios)
    write_csv(sweep.study, tmp_path / "study.csv")
    read = pandas.read_csv(tmp_path / "study.csv")
    assert read["days"].sum() == pytest.approx(table["days"].astype(float).sum())
    assert list(read.columns) == list(table.columns)


def test_prices_make_the_cost_and_those_without_are_told() -> None:
    """A GPU without a price has no cost and is not on the front; without any price GPU-hours count."""
    axes = axes_of(["gpu=h100,a100-80-sxm"])
    some = what_if(SMALL | {"gpus": 2}, axes, economy=Economy.of(price="h100=2"))
    assert some.study.cost_unit == "USD"
    assert [each.pareto for each in some.study.scenarios] == [True, False]
    assert any("No price is given for a100-80-sxm" in note for note in some.study.notes)
    none = what_if(SMALL | {"gpus": 2}, axes)
    assert none.study.cost_unit == "GPU-hours"
    assert any("an hour of every GPU counts the same" in note for note in none.study.notes)

"""Clusters of several kinds of GPUs: the best plan on one of them, and what the others take."""

import json
from pathlib import Path
from typing import Any

import pytest

from cli.main import run
from cost_models.specs import catalog
from cost_models.specs.errors import SpecError
from planner import search
from planner.errors import InfeasibleError, Interrupted, LimitReached, RequestError
from planner.mixed import plan_groups, requests_of
from planner.request import PlanRequest

TWO = 'name = "two"\n[[groups]]\ngpu = "h100"\ngpus = 4\n[[groups]]\ncluster = "dgx-a100"\ngpus = 8\n'
JOB: dict[str, Any] = {"model": "llama3.2-1b", "global_batch": 16, "seq_len": "2k"}


def mixed(folder: Path, text: str = TWO) -> str:
    """The path of a cluster file."""
    path = folder / "cluster.toml"
    path.write_text(text)
    return str(path)


def test_the_fastest_group_is_planned_for_and_the_others_are_told(tmp_path: Path) -> None:
    """Each by itself is planned as ever; the answer is the least, with a sentence for every other."""
    requests = requests_of({**JOB, "cluster": mixed(tmp_path)})
    assert [(each.cluster.gpu.name, each.cluster.gpus) for each in requests] == [("h100-sxm", 4), ("a100-80-sxm", 8)]
    alone = [search.plan(request) for request in requests]
    document = plan_groups(requests)
    best = min(alone, key=lambda each: each.predicted.step_time_s)
    assert document.replaced(assumptions=best.assumptions) == best
    told = document.assumptions[len(best.assumptions) :]
    assert len(told) == 2
    other = next(each for each in alone if each is not best)
    assert "GPUs are left idle" in told[0]
    assert f"On {other.cluster.gpus} x {other.cluster.gpu.name} a step takes" in told[1]


def test_all_groups_are_asked_for_the_same_step(tmp_path: Path) -> None:
    """Without a batch, for that of the largest."""
    requests = requests_of({"model": "llama3.2-1b", "cluster": mixed(tmp_path)})
    assert len({request.workload for request in requests}) == 1
    assert len(requests_of({**JOB, "gpu": "h100", "gpus": 8})) == 1


def test_a_group_where_nothing_fits_is_told_as_such(tmp_path: Path) -> None:
    """And where nothing fits anywhere, each group says why."""
    text = TWO.replace('"h100"\ngpus = 4', '"l4"\ngpus = 1')
    flags = {"model": "llama3-8b", "global_batch": 8, "seq_len": "2k", "cluster": mixed(tmp_path, text)}
    requests = requests_of(flags)
    small = [each.replaced(cluster=each.cluster.replaced(host_memory_bytes=10**9)) for each in requests]
    document = plan_groups(small)
    assert document.cluster.gpu.name == "a100-80-sxm"
    assert any(sentence.startswith("On 1 x l4: nothing fits") for sentence in document.assumptions)
    with pytest.raises(InfeasibleError) as caught:
        plan_groups([each.replaced(capacity_bytes=1e9) for each in small])
    assert [message.partition(":")[0] for message in caught.value.messages] == ["1 x l4", "8 x a100-80-sxm"]


@pytest.mark.parametrize("stop", [LimitReached, Interrupted])
def test_a_search_that_is_stopped_returns_the_best_of_what_there_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stop: type[Exception]
) -> None:
    """The group that was stopped counts with what it had; after an interrupt no other is begun."""
    requests, real, begun = requests_of({**JOB, "cluster": mixed(tmp_path)}), search.plan, []

    def stopped(request: PlanRequest, progress: object) -> object:
        begun.append(request)
        document = real(request)
        raise stop(document) if len(begun) == 1 else AssertionError

    def both(request: PlanRequest, progress: object, jobs: int = 1) -> object:
        return stopped(request, progress) if not begun or stop is Interrupted else real(request)

    monkeypatch.setattr(search, "plan", both)
    with pytest.raises(stop) as caught:
        plan_groups(requests)
    assert caught.value.document is not None  # type: ignore[attr-defined]
    assert len(begun) == 1


def test_the_command_takes_a_mixed_cluster(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its file alone says how many GPUs there are; a flag that says it too is refused."""
    flags = [
        "--model",
        "llama3.2-1b",
        "--cluster",
        mixed(tmp_path),
        "--global-batch",
        "16",
        "--seq-len",
        "2k",
        "--json",
    ]
    assert run(flags) == 0
    document = json.loads(capsys.readouterr().out)
    assert sum("GPUs are left idle" in sentence for sentence in document["assumptions"]) == 1
    assert run([*flags, "--gpus", "8"]) == 2
    assert "--gpus 8 contradicts --cluster" in json.loads(capsys.readouterr().out)["error"]["message"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('name = "x"\ngroups = []', "cluster.groups"),
        ('name = "x"\n[[groups]]\ngpus = 4', "must name a gpu or a cluster"),
        ('name = "x"\n[[groups]]\ngpu = "h100"\ncluster = "dgx-h100"\ngpus = 4', "one of them"),
        ('name = "x"\n[[groups]]\ngpu = "h100"\ngpus = 0', r"cluster.groups\[0\].gpus must be >= 1, got 0"),
        ('name = "x"\n[[groups]]\ngpu = "h1000"\ngpus = 4', "h1000"),
    ],
)
def test_what_is_wrong_with_a_file_is_told(tmp_path: Path, text: str, message: str) -> None:
    """The field, the value and what is allowed."""
    with pytest.raises((SpecError, RequestError), match=message):
        requests_of({**JOB, "cluster": mixed(tmp_path, text)})


def test_a_homogeneous_file_and_a_preset_are_no_mixed_clusters(tmp_path: Path) -> None:
    """They are read as ever."""
    assert catalog.load_mixed_cluster("dgx-h100") is None
    source = (catalog.data_folder() / "clusters" / "dgx-h100.toml").read_text()
    assert catalog.load_mixed_cluster(mixed(tmp_path, source)) is None

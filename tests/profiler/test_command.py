"""`plan profile` as a command, with ranks that answer at once: files, interruptions and refusals."""

import errno
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch

import cli.measure
from cli.main import run
from cost_models.specs.measured_profile import read
from planner.document import files
from profiler import device, work
from profiler.points import Measured, Point

MODEL = "data/loop/small-llama.toml"
COMMAND = ["profile", "--device", "cpu", "--ranks", "2", "--model", MODEL, "--seq-len", "128", "--global-batch", "4"]


class Ready:
    """Two ranks that take work over a rate, rows a longer time each, and end at some point."""

    ranks, device = 2, torch.device("cpu")

    def __init__(self, ends_at: int) -> None:
        self.asked: list[Point] = []
        self._ends_at = ends_at

    def measure(self, point: Point, limit_s: float) -> Measured:
        """A point."""
        if len(self.asked) == self._ends_at:
            raise KeyboardInterrupt
        self.asked.append(point)
        size = 4.0 if point.operator.startswith("attention") else 200.0 if point.detail else 1.0
        for each in point.sizes:
            size *= each
        return Measured(point, 1e-6 + 1e-9 * size, 0.01, 10)


@pytest.fixture
def crew(monkeypatch: pytest.MonkeyPatch) -> Ready:
    """The ranks of every measurement of a test; budgets are half a second."""
    ready = Ready(10**9)

    @contextmanager
    def _crew(kind: str, ranks: int) -> Iterator[Ready]:
        yield ready

    monkeypatch.setattr(cli.measure, "_crew", _crew)
    monkeypatch.setattr(cli.measure, "BUDGETS_S", {"quick": 8.0, "full": 8.0})
    return ready


def test_a_profile_is_written_and_planned_with(crew: Ready, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file is one that --profile takes; what was kept meanwhile is gone."""
    path = tmp_path / "profile.json"
    assert run([*COMMAND, "-o", str(path)]) == 0
    found = read(path)
    assert found.profile.provenance is not None
    assert found.profile.provenance.ranks == 2
    assert list(tmp_path.iterdir()) == [path]
    capsys.readouterr()
    planning = [
        "--model",
        MODEL,
        "--gpus",
        "2",
        "--profile",
        str(path),
        "--recipe",
        "runtime-cpu",
        "--global-batch",
        "4",
    ]
    assert run([*planning, "--seq-len", "128", "--schedule", "1f1b", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["predicted"]["measured_share"] > 0.5


def test_an_interrupted_measurement_keeps_what_it_has(crew: Ready, tmp_path: Path) -> None:
    """Ctrl-C: exit 130 and no profile; started again, it measures what is missing."""
    path = tmp_path / "profile.json"
    crew._ends_at = 6
    assert run([*COMMAND, "-o", str(path)]) == 130
    assert not path.exists()
    first = set(crew.asked[1:])
    crew.asked.clear()
    crew._ends_at = 10**9
    assert run([*COMMAND, "-o", str(path)]) == 0
    assert not first & set(crew.asked[1:])
    assert path.exists()


def test_a_full_disk_is_told(
    crew: Ready, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The point that cannot be kept ends the measurement with the system's reason."""

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files, "write_whole", full)
    assert run([*COMMAND, "-o", str(tmp_path / "profile.json")]) == 2
    assert "no space left on device" in capsys.readouterr().err
    assert len(crew.asked) <= 2


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["profile", "--device", "tpu"], "--device must be cpu or cuda, got 'tpu'"),
        (["profile", "--device", "cuda"], "there is no GPU that PyTorch can use here; --device cpu"),
        (["profile", "--device", "cpu", "-o", "missing/profile.json"], "there is no folder"),
    ],
)
def test_refusals_come_before_anything_is_measured(
    arguments: list[str], told: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each names what is wrong and what is allowed, with exit 2."""
    monkeypatch.setattr(device, "_gpu_memory", list)
    assert run(arguments) == 2
    assert told in capsys.readouterr().err


def test_a_gpu_in_use_is_told(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Memory that somebody else holds is named; the answer is no, exit 1."""
    monkeypatch.setattr(device, "_gpu_memory", lambda: [(2**34, 2**36)])
    assert run(["profile", "--device", "cuda", "--ranks", "1"]) == 1
    assert "GPU 0 is in use: 49,152 of 65,536 MiB are taken" in capsys.readouterr().err
    assert run(["profile", "--device", "cuda", "--ranks", "2"]) == 2
    assert "--ranks must be at most 1, a rank for each GPU here, got 2" in capsys.readouterr().err


def test_the_cache_of_this_machine_is_read() -> None:
    """Between a megabyte and a gigabyte, or the tests' machine is none that we know."""
    assert 2**18 <= work.cache_bytes(torch.device("cpu")) <= 2**30

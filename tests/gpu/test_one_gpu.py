"""What one NVIDIA GPU shows in under six minutes: kernels, copies, interference, and steps of a model of 1.2 billion
parameters, predicted and measured. Without a GPU everything is skipped.

    pytest -m gpu tests/gpu -s
"""

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("nvidia-smi") is None, reason="no NVIDIA GPU here"),
]

MODEL = "llama3.2-1b"
STEP = ("--seq-len", "2048", "--global-batch", "8")
LIMIT_S = 340.0
LEAST_CONFIGURATIONS = 8


@pytest.fixture(scope="module")
def began() -> float:
    """When the set began."""
    return time.monotonic()


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory, began: float) -> Path:
    """A quick profile of the first GPU."""
    path = tmp_path_factory.mktemp("gpu") / "profile.json"
    _plan(began, "profile", "--device", "cuda", "--ranks", "1", "--model", MODEL, *STEP, "-o", str(path))
    return path


def test_kernels_copies_and_interference_are_measured(profile: Path) -> None:
    """Products, attention, memory-bound operators, pinned copies, and three streams in every combination."""
    found = json.loads(profile.read_text(encoding="utf-8"))["profile"]
    parts = found["provenance"]["tables"]
    assert {"gemm", "attention", "elementwise", "launch", "copies", "interference", "context"} <= set(parts)
    assert set(found["slowdowns"]["factors"]) == {
        *("compute+host_to_device", "compute+device_to_host", "host_to_device+device_to_host"),
        "compute+host_to_device+device_to_host",
    }


def test_steps_are_predicted(profile: Path, began: float, tmp_path: Path) -> None:
    """At least eight configurations of micro-batch and recompute: time within 20 % in mean, memory within 10 %."""
    rows = tmp_path / "loop.csv"
    counts = ("--best", "4", "--random", "4", "--bad", "2", "--rounds", "1", "--steps", "3")
    told = _plan(began, "loop", "--profile", str(profile), "--model", MODEL, *STEP, *counts, "-o", str(rows), "--json")
    print(rows.read_text(encoding="utf-8"))
    (of_model,) = json.loads(told)["models"]
    assert len(of_model["results"]) >= LEAST_CONFIGURATIONS
    assert of_model["time_error"] <= 0.20
    assert of_model["memory_error"] <= 0.10


def _plan(began: float, *arguments: Any) -> str:
    """What a command printed; it fails when the set's limit is reached."""
    left_s = max(1.0, LIMIT_S - (time.monotonic() - began))
    command = [sys.executable, "-m", "cli.main", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=left_s, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

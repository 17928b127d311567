"""Mist's nine measured runs on L4, against this project's own cost model."""

from typing import Any

import numpy as np
import pytest

from cost_models import communication
from cost_models.specs import catalog
from tests.oracles.mist import report
from tests.oracles.mist.hardware import Card, artifact
from tests.oracles.mist.product import Predicted

RUNS = artifact()["runs"]


def run_name(run: dict[str, Any]) -> str:
    """A run's model, as a test's name."""
    return f"{run['family']}-{run['size']}-{'flash' if run['flash'] else 'scores'}"


def test_every_run_is_here() -> None:
    """Six runs of GPT, three of Llama."""
    assert [run["family"] for run in RUNS].count("gpt") == 6
    assert len(RUNS) == 9


@pytest.mark.parametrize("run", RUNS, ids=run_name)
def test_memory(run: dict[str, Any]) -> None:
    """Peak allocated bytes are within 5 % of those measured, at every stage."""
    errors = Predicted.of(run).allocated_mib / run["measured_allocated_mib"] - 1
    assert np.abs(errors).max() < 0.05


@pytest.mark.parametrize("run", RUNS, ids=run_name)
def test_time(run: dict[str, Any]) -> None:
    """With the catalog's profile of the L4 a step is within 10 % of the measured, and faster in every run."""
    assert -0.10 < Predicted.of(run).step_s / run["measured_s"] - 1 < 0.0


@pytest.mark.parametrize(("operation", "factor"), [("all_gather", 1.0), ("reduce_scatter", 1.1)])
@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_collectives_of_the_profile_are_those_that_were_measured(operation: str, factor: float, ranks: int) -> None:
    """Inside a node, of as many GPUs: the line through Mist's measurements, at every size."""
    bound = communication.bind(catalog.load_cluster("l4-pcie", 8), catalog.load_profile("l4"))
    for mib in (0.25, 16.0, 1024.0):
        measured_s = Card("free").collective_s(operation, mib, 1, ranks)
        assert bound[f"{operation}_s"](2**20 * mib, float(ranks), 1.0) == pytest.approx(measured_s, rel=2e-3)
        assert measured_s == pytest.approx(factor * Card("free").collective_s("all_gather", mib, 1, ranks))


def test_report_of_runs(capsys: pytest.CaptureFixture[str]) -> None:
    """The figures of docs/mist.md on measured runs can be printed: a line a run, and two that explain."""
    report.measured()
    report.mirror()
    report.head()
    printed = capsys.readouterr().out
    assert all(f"{run['family']} {run['size']}" in printed for run in RUNS)
    assert "worked example" in printed
    assert "48.3 ms at batch 1, 7.0 ms at batch 0" in printed

"""The closed loop: statistics by hand, and a short form of it on this machine."""

from dataclasses import replace
from math import inf
from pathlib import Path

import pytest

from planner.trial_results import Result, kendall, outcome, result_of


def test_figures_of_an_outcome() -> None:
    """Three plans in the right order but for the best two: regret, correlation and errors by hand."""
    results = [_result("best", 1.0, 1.1), _result("best", 1.05, 1.0), _result("bad", 2.0, 2.0)]
    found = outcome("any", results)
    assert found.regret == pytest.approx(0.1)
    assert found.kendall_of_best == -1.0
    assert found.spearman == pytest.approx(0.5)
    assert found.time_error == pytest.approx((1 - 1 / 1.1 + 0.05 + 0.0) / 3)


def test_kendall_counts_ties_out() -> None:
    """Tau-b of two orders, and 0 where one side says nothing."""
    assert kendall([1, 2, 3, 4], [1, 2, 4, 3]) == pytest.approx(4 / 6)
    assert kendall([1, 1, 2], [1, 2, 3]) == pytest.approx(2 / (2 * 3) ** 0.5)
    assert kendall([1, 1], [1, 2]) == 0.0


def test_rounds_agree_as_far_as_their_orders_do() -> None:
    """Three plans in two rounds, two of the three pairs in one order; a single round has nothing to differ from."""
    turns = [(1.0, 1.1), (1.05, 1.0), (2.0, 2.0)]
    results = [replace(_result("best", 1.0, 1.0), turns_s=each) for each in turns]
    assert outcome("any", results).kendall_of_rounds == pytest.approx(1 / 3)
    alone = [replace(one, turns_s=one.turns_s[:1]) for one in results]
    assert outcome("any", alone).kendall_of_rounds == 1.0


def test_turns_become_a_result() -> None:
    """The median of all steps, and half the range of the turns' medians as noise."""
    turns = [{"step_time_s": [1.0, 1.0], "waited_s": [0.0, 0.1]}, {"step_time_s": [1.2, 1.2], "waited_s": [0.0, 0.1]}]
    found = result_of("best", "plan", (1.1, 100.0), turns, 80.0)
    assert (found.measured_s, found.memory_error) == (pytest.approx(1.1), pytest.approx(0.25))
    assert found.noise == pytest.approx(0.1 / 1.1)


@pytest.mark.slow
def test_the_loop_in_short(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Measured, planned, run and compared on two ranks. How far off predictions are is told by `plan loop` itself."""
    pytest.importorskip("torch")
    from cli.loop import _outcome
    from cli.measure import measured_profile
    from cost_models.specs.measured_profile import write
    from runtime.loop import Rounds

    model, path = "data/loop/small-llama.toml", tmp_path / "profile.json"
    step = ("128", 8)
    measured = measured_profile(
        [model], device="cpu", method="quick", budget_s=10.0, ranks=2, seq_len=step[0], global_batch=step[1]
    )
    write(measured, path)
    found = _outcome(model, str(path), 2, step, {"best": 2, "random": 1, "bad": 1}, Rounds(1, 2))
    assert sorted(each.kind for each in found.results) == ["bad", "best", "best", "random"]
    assert len({each.plan for each in found.results}) == 4
    assert all(0 < each.measured_s < inf and 0 < each.predicted_s < inf for each in found.results)
    # A prediction that misses a thing of size, or counts it twice, is further off than this.
    assert all(abs(each.memory_error) < 0.5 for each in found.results)


def _result(kind: str, predicted_s: float, measured_s: float) -> Result:
    return Result(kind, "plan", predicted_s, 1.0, measured_s, 1.0, 0.0, 0.0)

import io
import json
from dataclasses import replace

from rich.console import Console

from planner.timeline.comparison import compared
from planner.timeline.perturbation import Perturbation, perturbed, slowed
from planner.timeline.record import simulation_record
from planner.timeline.step import replayed
from planner.timeline.text import Simulation, comparison_lines, report
from tests.planner.timeline.cases import simulation, two_ranks
from tests.planner.timeline.test_comparison import measured


def printed(of: Simulation) -> str:
    """The report on 100 columns."""
    text = io.StringIO()
    Console(file=text, width=100).print(report(of))
    return text.getvalue()


def whole() -> Simulation:
    """A plan with everything asked for: rank 1 slower, and measured with rank 2 slower."""
    plain = simulation()
    step = plain.timeline.step
    slow = replayed(step.table, slowed(step.times, [Perturbation(2, 1.5)]), step.global_s)
    found = compared(step, measured(slow, without=(3,)))
    return replace(plain, perturbed=tuple(perturbed(step, [Perturbation(1, 1.2)])), comparison=found)


def test_the_report_tells_what_was_asked() -> None:
    """The step, its ranks and its path always; slower ranks and a trace only where they were given."""
    plain, full = printed(simulation()), printed(whole())
    for heading in ("Ranks", "Critical path"):
        assert f"\n{heading}" in plain
    assert "Slower ranks" not in plain
    assert "Measured" not in plain
    assert "rank 1 x 1.2" in full
    assert "slowest is rank 2, 50.0 % over the prediction" in full
    assert "no trace of rank 3" in full
    assert "first deviation: rank 2, forward m0 c0 lasts" in full


def test_the_record_holds_what_the_report_tells() -> None:
    """Plain JSON with units in the names; what was not asked for is left out."""
    plain, full = (json.loads(json.dumps(simulation_record(of), allow_nan=False)) for of in (simulation(), whole()))
    assert set(full) - set(plain) == {"perturbed", "comparison"}
    assert [rank["rank"] for rank in plain["ranks"]] == [0, 1, 2, 3]
    assert plain["step_time_s"] == plain["span_s"] + plain["global_s"]
    assert full["perturbed"][0]["perturbations"] == [{"stage": 1, "factor": 1.2}]
    assert full["comparison"]["rank_ratio"][3] is None
    assert full["comparison"]["first_deviation"]["rank"] == 2


def test_a_comparison_without_deviation_says_so() -> None:
    """Nobody is accused."""
    step = two_ranks()
    lines = comparison_lines(compared(step, measured(step)))
    assert lines[0] == "12 actions compared"
    assert lines[-2].startswith("no rank is slow")
    assert lines[-1] == "no action deviates"

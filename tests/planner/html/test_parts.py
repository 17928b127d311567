"""The parts of pages by themselves: fields, axes, fronts, sweeps, effects, words."""

import pytest

from planner.report.axes import round_between, round_interval, round_values
from planner.report.html.effects import effects
from planner.report.html.fields import Fields
from planner.report.html.groups import sharings
from planner.report.html.job import listed
from planner.report.html.scatter import Point, scatter
from planner.report.html.sweeps import sweeps
from planner.report.html.words import certificate, reasons
from tests.planner.html.cases import document, study
from tests.planner.sample import sample_document


def test_fields_are_found_by_their_paths() -> None:
    """Attributes, places and keys; a share of one in another."""
    plan = document("llama3-70b_256")
    fields = Fields(plan)
    assert fields.value("stages[2].predicted.memory_bytes.weights") == plan.stages[2].predicted.memory_bytes.weights
    assert fields.value("predicted.time_breakdown_s.compute") == plan.predicted.time_breakdown_s["compute"]
    share = fields.share("predicted.time_breakdown_s.compute", "predicted.step_time_s")
    assert share.value == plan.predicted.time_breakdown_s["compute"] / plan.predicted.step_time_s
    with pytest.raises(AttributeError):
        fields("predicted.unheard_of")


@pytest.mark.parametrize("whole", [1e-6, 0.3, 1.0, 7.0, 10.0, 99.9, 1e9])
@pytest.mark.parametrize("most", [3, 6, 10])
def test_axes_are_round_and_not_crowded(whole: float, most: int) -> None:
    """At most so many intervals of 1, 2 or 5 times a power of ten, and not fewer than two fifths of them."""
    interval = round_interval(whole, most)
    assert f"{interval:.6e}"[0] in "125"
    assert 0.4 * most - 1e-9 <= whole / interval <= most + 1e-9
    values = round_values(whole, most)
    assert values[0] == 0.0
    assert values[-1] <= whole * (1 + 1e-9)
    between = round_between(whole, 2 * whole, most)
    assert all(whole * (1 - 1e-9) <= value <= 2 * whole * (1 + 1e-9) for value in between)


def test_the_front_falls_in_steps() -> None:
    """Through the points that no other beats; those are drawn last, on top."""
    points = [Point(1, 5, "a", ""), Point(2, 5, "b", ""), Point(3, 1, "c", ""), Point(4, 4, "d", "", chosen=True)]
    drawn = scatter(points, "x", "y", str, str)
    assert [mark.point.label for mark in drawn.marks] == ["b", "d", "a", "c"]
    ((first, corner, last),) = drawn.lines
    by_label = {mark.point.label: mark for mark in drawn.marks}
    assert first == (by_label["a"].left, by_label["a"].top)
    assert corner == (by_label["c"].left, by_label["a"].top)
    assert last == (by_label["c"].left, by_label["c"].top)
    assert all(0 <= mark.left <= 100 and 0 <= mark.top <= 100 for mark in drawn.marks)


def test_one_point_is_drawn() -> None:
    """In the middle, for want of a span."""
    (mark,) = scatter([Point(3.0, 0.0, "a", "")], "x", "y", str, str).marks
    assert mark.left == pytest.approx(50)
    assert 0 <= mark.top <= 100


def test_sweeps_have_a_panel_for_each_of_the_rest() -> None:
    """Along the input of most values, rows of the next, panels of the last; what has no plan is a gap in its curve."""
    drawn = sweeps(study(), Fields(study()))
    assert [each.metric.key for each in drawn] == ["speed", "cost", "mfu", "step"]
    speed = drawn[0]
    assert (speed.x.key, speed.y.key if speed.y else None) == ("gpus", "seq-len")
    assert [panel.name for panel in speed.panels] == ["recipe megatron", "recipe torchtitan"]
    shown = [cell for panel in speed.panels for _, cells in panel.rows for cell in cells]
    assert sorted(cell.scenario for cell in shown) == list(range(12))
    assert {cell.scenario: cell.status for cell in shown if cell.number is None} == {3: "infeasible", 7: "invalid"}
    curve = speed.panels[1].curves[1]  # torchtitan, 8192: scenarios 3, 7, 11
    assert [[dot.scenario for dot in run] for run in curve.runs] == [[11]]
    names = sorted(curve.name_top for curve in speed.panels[0].curves)
    assert names[1] - names[0] >= 7.5
    most = max(shown, key=lambda cell: cell.at)
    assert (most.at, most.scenario) == (100.0, 8)


def test_effects_compare_with_everything_else_equal() -> None:
    """Twice the GPUs are twice as fast here; the pairs without a plan do not count."""
    names, inputs = effects(study())
    assert names == ("billion tokens a day", "$ a million tokens")
    gpus, lengths, recipes = inputs
    assert [(row.value, row.pairs) for row in gpus.rows] == [("16", 3), ("32", 3)]
    assert gpus.rows[0].factors[0] == "x 2.00"
    assert [row.pairs for row in lengths.rows] == [4]
    assert lengths.rows[0].factors[0] == "x 0.71"
    assert recipes.rows[0].factors[0] == "x 0.90"
    left, wide = recipes.rows[0].bars[0]
    assert left + wide == pytest.approx(50)


def test_ways_to_share_say_where_they_reach() -> None:
    """TP inside the node, the pipeline over the network; a way of one rank is left out; each at its cost."""
    plan = document("llama3-70b_256")
    found = {each.name.partition(" +")[0]: each for each in sharings(plan, Fields(plan))}
    assert list(found) == ["Tensor parallel", "Context parallel", "Pipeline", "Data parallel", "Recompute"]
    assert found["Tensor parallel"].where == "nvlink"
    assert found["Pipeline"].where == "infiniband"
    cost = found["Tensor parallel"].seconds
    assert cost is not None
    assert cost.value == plan.predicted.time_breakdown_s["tensor_parallel"]
    experts = {
        each.name: each.does for each in sharings(document("mixtral-8x7b_64"), Fields(document("mixtral-8x7b_64")))
    }
    assert "Tensor parallel" not in experts or document("mixtral-8x7b_64").parallelism.tp > 1


@pytest.mark.parametrize(
    ("verdict", "low", "high", "text"),
    [("yes", 0.9, 1.0, "fits, too"), ("borderline", 0.95, 1.05, "may not fit"), ("no", 1.01, 1.2, "does not fit")],
)
def test_words_say_what_the_band_says(verdict: str, low: float, high: float, text: str) -> None:
    """The end of the band that decides."""
    plain = sample_document().predicted
    peak = plain.peak_memory_bytes
    capacity = peak.device / ((low + high) / 2)
    peak = peak.replaced(low=low * capacity, high=high * capacity, capacity=capacity)
    plan = sample_document(predicted=plain.replaced(peak_memory_bytes=peak, verdict=verdict))
    assert text in dict(reasons(plan, Fields(plan)))["Memory"]


def test_words_of_a_search_that_was_stopped() -> None:
    """They promise no optimum."""
    plain = sample_document()
    stopped = sample_document(certificate=plain.certificate.replaced(status="FEASIBLE"))
    assert "A limit stopped the search" in certificate(stopped, Fields(stopped))
    assert "A limit stopped" not in certificate(plain, Fields(plain))
    alone = sample_document(alternatives=())
    assert [name for name, _ in reasons(alone, Fields(alone))] == ["Time", "Memory", "How sure"]


def test_texts_of_many_things_are_lists() -> None:
    """Others are left alone, colons and all."""
    assert listed("Not searched: a: b; c; d; e.") == ("Not searched", ("a: b", "c", "d", "e"))
    assert listed("Memory: 80GB; as measured.") == ("Memory: 80GB; as measured.", ())

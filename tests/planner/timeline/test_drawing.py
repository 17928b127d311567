import re
import xml.etree.ElementTree as ElementTree

import pytest

from cost_models.schedules.table import Kind
from planner.errors import RequestError
from planner.timeline import lanes
from planner.timeline.drawing import legend, svg, ticks
from planner.timeline.lanes import KIND_CLASSES, Scale, critical_marks, labels, memory_area
from planner.timeline.page import page
from tests.planner.timeline.cases import plan_timeline, simulation, split_gradients, two_ranks, with_memory

NAMESPACE = "{http://www.w3.org/2000/svg}"


def test_the_drawing_has_a_box_an_action() -> None:
    """Well-formed, coloured by kind, each box with a title that names rank, action and times."""
    timeline = plan_timeline()
    root = ElementTree.fromstring(svg(timeline, "a < b & c"))
    boxes = [box for box in root.iter(f"{NAMESPACE}rect") if box.find(f"{NAMESPACE}title") is not None]
    edges = sum(len(timeline.step.edges(rank)) for rank in range(timeline.step.ranks))
    assert len(boxes) == timeline.step.table.actions + edges
    kinds = [box.get("class") for box in boxes]
    for kind in Kind:
        assert kinds.count(KIND_CLASSES[kind]) == (timeline.step.table.kind == kind).sum()
    titles = [box.findtext(f"{NAMESPACE}title") or "" for box in boxes]
    assert sum(title.startswith("rank 0: forward m0 c0, ") for title in titles) == 1
    assert len(list(root.iter(f"{NAMESPACE}path"))) == timeline.step.ranks
    assert "a < b & c" in [text.text for text in root.iter(f"{NAMESPACE}text")]


def test_nothing_is_loaded_from_elsewhere() -> None:
    """Drawing and page stand alone: no address, no script, no import of a style."""
    for text in (svg(plan_timeline(), "plan"), page(simulation())):
        without_namespace = text.replace("http://www.w3.org/2000/svg", "")
        assert not re.search(r"https?:|<script|<link|@import|url\(", without_namespace)


def test_boxes_stand_where_and_as_long_as_actions_run() -> None:
    """A step of 12 s over 1200 units: 100 units a second, a little blank after each box."""
    step = two_ranks()
    left, wide = Scale(step.step_s, 1200).box(float(step.start_s[1]), float(step.end_s[1]))
    assert left == 100
    assert 99 < wide < 100


def test_numbers_stand_where_there_is_room() -> None:
    """Forwards of a second get no number where only backwards of two are wide enough."""
    step = two_ranks()
    assert [number for _, _, number in labels(step, 0, Scale(step.step_s, 120), narrowest=15)] == [0, 1, 2]
    assert len(labels(step, 0, Scale(step.step_s, 120), narrowest=5)) == 6


def test_the_critical_path_is_marked_without_gaps() -> None:
    """Rank 1 works all of its path in a row: one bar."""
    step = two_ranks()
    assert critical_marks(step, 1, Scale(step.step_s, 1200), 0, 3).count("<rect") == 1
    assert critical_marks(step, 0, Scale(step.step_s, 1200), 0, 3).count("<rect") == 2


def test_memory_reaches_the_top_when_it_is_full() -> None:
    """12 of 12 bytes at the top, 10 of 12 a sixth lower."""
    curve = with_memory(two_ranks()).memory[0]
    area = memory_area(curve, 12.0, Scale(12.0, 120.0), top=0.0, height=24.0)
    assert 'd="M0 24H0.00V2.00H10.00V0.00H90.00V2.00H120.00V4.00V24Z"' in area


def test_the_legend_tells_only_what_is_drawn() -> None:
    """Input and weight gradients where the schedule has them."""
    assert [kind for kind, _ in legend(with_memory(two_ranks()))] == ["f", "b", "e", "c", "m"]
    assert [kind for kind, _ in legend(with_memory(split_gradients()))] == ["f", "b", "i", "w", "e", "c", "m"]


@pytest.mark.parametrize(
    ("step_s", "last"), [(15.9, "14 s"), (0.25, "250 ms"), (0.999, "0.9 s"), (3e-5, "30 us"), (10.0, "10 s")]
)
def test_ticks_are_round_and_few(step_s: float, last: str) -> None:
    """From 0 to the last round time of the step."""
    times_s, texts = zip(*ticks(step_s), strict=True)
    assert times_s[0] == 0
    assert texts[-1] == last
    assert 5 <= len(texts) <= 11
    assert step_s * 0.8 < times_s[-1] <= step_s * (1 + 1e-12)


def test_the_page_tells_what_the_terminal_tells() -> None:
    """A lane a rank, the tables, no value of the template left out."""
    text = page(simulation())
    assert text.count('<div class="lane">') == 4
    for heading in ("Ranks", "Critical path"):
        assert f"<h2>{heading}</h2>" in text
    assert "Measured" not in text
    assert "<title>llama3-70b: timeline</title>" in text


def test_too_many_actions_are_not_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A message with both numbers and another way."""
    monkeypatch.setattr(lanes, "MOST_ACTIONS", 11)
    for draw in (lambda: svg(with_memory(two_ranks()), "plan"), lambda: page(simulation())):
        with pytest.raises(RequestError, match=r"at most 11 actions, the plan runs .*; see --trace"):
            draw()

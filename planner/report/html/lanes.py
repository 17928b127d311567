"""The timeline of a plan on its page: the drawing that `plan simulate --html` has, or the reason why there is none."""

from dataclasses import dataclass
from typing import Any

from cost_models.specs.errors import SpecError
from cost_models.specs.profile import HardwareProfile
from planner.document import PlanDocument
from planner.errors import PlannerError
from planner.timeline.page import chart_values
from planner.timeline.text import other_step, step_text
from planner.timeline.timeline import timeline_of_plan

__all__ = ["Lanes", "lanes"]

# A page of more actions than this gets heavy; `plan simulate --html` draws ten times as many.
MOST_ACTIONS = 20_000


@dataclass(frozen=True)
class Lanes:
    """Values of the drawing, None where there is none; and what there is to say about it."""

    chart: dict[str, Any] | None
    text: str
    note: str = ""


def lanes(document: PlanDocument, profile: HardwareProfile | None = None) -> Lanes:
    """The step of a document, costed anew and drawn, timed by `profile`, else by its own."""
    try:
        timeline = timeline_of_plan(document, profile)
    except (PlannerError, SpecError) as error:
        return Lanes(None, f"The step is not drawn: {error}.")
    actions = timeline.step.table.actions
    if actions > MOST_ACTIONS:
        more = f"The step has {actions:,} actions, more than a page of this kind holds; `plan simulate` draws it."
        return Lanes(None, f"{_sentence(step_text(timeline))} {more}")
    return Lanes(chart_values(timeline), _sentence(step_text(timeline)), other_step(document, timeline))


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."

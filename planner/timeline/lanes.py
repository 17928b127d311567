"""The lanes of a drawn timeline: what a rank does as boxes, and its memory as an area, in SVG.

A lane is drawn in a box of given width and height, time to the right. Colour tells the kind of an action, shade the
chunk; idle time is left blank. Every box names itself in a <title>, which browsers show under the pointer.
"""

from dataclasses import dataclass
from html import escape

import numpy as np

from cost_models.schedules.table import Kind
from planner.errors import RequestError
from planner.report.quantities import duration, gib
from planner.timeline.memory import MemoryCurve
from planner.timeline.step import Step, action_name

__all__ = ["KIND_CLASSES", "Scale", "check_drawable", "critical_marks", "labels", "memory_area", "work_boxes"]

KIND_CLASSES = {Kind.FORWARD: "f", Kind.BACKWARD: "b", Kind.INPUT_GRAD: "i", Kind.WEIGHT_GRAD: "w"}
# The faintest chunk; the first one is drawn in full colour.
FAINTEST = 0.42
GAP = 0.6
"""Most of a box, in units of the drawing, that is left blank so that neighbours stand apart."""
GAP_SHARE = 0.12
MOST_ACTIONS = 200_000
"""Actions in one drawing: about 30 MB of it, which browsers still open."""


@dataclass(frozen=True)
class Scale:
    """From seconds to units of the drawing."""

    step_s: float
    width: float

    def x(self, time_s: float) -> float:
        """Units from the left."""
        return self.width * time_s / self.step_s

    def box(self, start_s: float, end_s: float) -> tuple[float, float]:
        """Left edge and width of a box, a little short of the next one."""
        left, wide = self.x(start_s), self.x(end_s) - self.x(start_s)
        return left, wide - min(GAP, GAP_SHARE * wide)


def check_drawable(step: Step) -> None:
    """Nothing when the step can be drawn. Raises RequestError when it has too many actions."""
    if step.table.actions > MOST_ACTIONS:
        message = f"a drawing holds at most {MOST_ACTIONS:,} actions, the plan runs {step.table.actions:,}; see --trace"
        raise RequestError(message)


def work_boxes(step: Step, rank: int, scale: Scale, top: float, height: float) -> str:
    """What the rank works: its actions, what comes before the first and after the last, the global part."""
    boxes = [
        _box(f"rank {rank}: {name}", "e", 1.0, (start_s, end_s), scale, top, height)
        for name, start_s, end_s in step.edges(rank)
    ]
    shades = np.linspace(1.0, FAINTEST, step.table.chunks) if step.table.chunks > 1 else np.ones(1)
    for index in step.actions_of(rank):
        kind, chunk = Kind(int(step.table.kind[index])), int(step.table.chunk[index])
        interval = float(step.start_s[index]), float(step.end_s[index])
        name = f"rank {rank}: {action_name(step.table, index)}"
        boxes.append(_box(name, KIND_CLASSES[kind], float(shades[chunk]), interval, scale, top, height))
    return "".join(boxes)


def _box(
    name: str, kind: str, shade: float, interval_s: tuple[float, float], scale: Scale, top: float, height: float
) -> str:
    left, wide = scale.box(*interval_s)
    shaded = f' opacity="{shade:.2f}"' if shade < 1 else ""
    title = f"{name}, {duration(interval_s[1] - interval_s[0])} from {duration(interval_s[0])}"
    return (
        f'<rect class="{kind}" x="{left:.2f}" y="{top:g}" width="{wide:.2f}" height="{height:g}"{shaded}>'
        f"<title>{escape(title)}</title></rect>"
    )


def labels(step: Step, rank: int, scale: Scale, *, narrowest: float) -> list[tuple[float, float, int]]:
    """(left, width, micro-batch) of the rank's actions that are at least so wide: there is room for a number."""
    found = []
    for index in step.actions_of(rank):
        left, wide = scale.box(float(step.start_s[index]), float(step.end_s[index]))
        if wide >= narrowest:
            found.append((left, wide, int(step.table.micro_batch[index])))
    return found


def critical_marks(step: Step, rank: int, scale: Scale, top: float, height: float) -> str:
    """Bars where the critical path lies on the rank; actions that follow each other share one."""
    mine = step.path[step.rank[step.path] == rank]
    if not mine.size:
        return ""
    cuts = np.flatnonzero(step.start_s[mine[1:]] > step.end_s[mine[:-1]]) + 1
    bars = []
    for part in np.split(mine, cuts):
        left, right = scale.x(float(step.start_s[part[0]])), scale.x(float(step.end_s[part[-1]]))
        bars.append(f'<rect class="c" x="{left:.2f}" y="{top:g}" width="{right - left:.2f}" height="{height:g}"/>')
    return "".join(bars)


def memory_area(curve: MemoryCurve, full_bytes: float, scale: Scale, top: float, height: float) -> str:
    """The memory of a rank as an area under steps; `full_bytes` reach the top."""

    def y(held: float) -> float:
        return top + height * (1 - held / full_bytes)

    floor = top + height
    path = [f"M0 {floor:g}"]
    for time_s, held in zip(curve.time_s.tolist(), curve.held_bytes.tolist(), strict=True):
        path.append(f"H{scale.x(time_s):.2f}V{y(held):.2f}")
    title = f"memory, at most {gib(curve.peak_bytes)} GiB, at {duration(curve.peak_s)}"
    return f'<path class="m" d="{"".join(path)}V{floor:g}Z"><title>{title}</title></path>'

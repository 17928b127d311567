"""Capacity studies: what-if over any inputs of planning, in parallel, resumable, each scenario as `plan` would."""

from planner.study.answers import default_folder
from planner.study.files import dumps_study, frame, loads_study
from planner.study.result import ScenarioResult, Study, SweptInput
from planner.study.run import Conducted, StudyProgress, what_if
from planner.study.sweep import Axis, axes_of, axis

__all__ = [
    "Axis",
    "Conducted",
    "ScenarioResult",
    "Study",
    "StudyProgress",
    "SweptInput",
    "axes_of",
    "axis",
    "default_folder",
    "dumps_study",
    "frame",
    "loads_study",
    "what_if",
]

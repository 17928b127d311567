"""Capacity studies: what-if over any inputs of planning, in parallel, resumable, each scenario as `plan` would."""

from planner.study.answers import default_folder
from planner.study.files import dumps_study, frame, loads_study
from planner.study.result import ScenarioResult, Study, SweptInput
from planner.study.run import StudyProgress, WhatIf, what_if
from planner.study.sweep import Axis, axes_of, axis

__all__ = [
    "Axis",
    "ScenarioResult",
    "Study",
    "StudyProgress",
    "SweptInput",
    "WhatIf",
    "axes_of",
    "axis",
    "default_folder",
    "dumps_study",
    "frame",
    "loads_study",
    "what_if",
]

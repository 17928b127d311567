"""What runs beside what, and how much each slows the other.

Two streams for now, compute and collectives, in Mist's form (EuroSys '25): while both run, each is slower by its
factor; when one ends, the other goes on alone.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.specs.profile import HardwareProfile

__all__ = ["bind"]

Array = NDArray[np.float64]


def bind(profile: HardwareProfile) -> dict[str, Callable[..., Any]]:
    """The body of `exposed_s` for a profile: (compute seconds, communication seconds) -> seconds, elementwise.

    Both together take compute + exposed: at least as long as either alone, at most their sum, and never less when
    either grows. docs/cost_model.md derives the form from the factors.
    """
    compute_factor = profile.overlap.compute_slowdown
    communication_factor = profile.overlap.communication_slowdown
    # Seconds that one second of the shorter stream adds to the longer. Factors so large that overlapping would not
    # pay reach 1, which is running one after the other.
    compute_adds = min(1.0, compute_factor * (1.0 - 1.0 / communication_factor))
    communication_adds = min(1.0, communication_factor * (1.0 - 1.0 / compute_factor))

    def exposed_s(compute: Array | float, communication: Array | float) -> Array:
        beyond = np.subtract(communication, np.multiply(1.0 - compute_adds, compute))
        return np.asarray(np.maximum(beyond, np.multiply(communication_adds, communication)))

    return {"exposed_s": exposed_s}

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
    """The body of `overlapped_s` for a profile: (compute seconds, communication seconds) -> seconds, elementwise.

    Monotone in both arguments and never above their sum: the envelope with running one after the other takes care of
    factors so large that overlapping would not pay.
    """
    slow_compute = profile.overlap.compute_slowdown
    slow_communication = profile.overlap.communication_slowdown

    def overlapped_s(compute: Array | float, communication: Array | float) -> Array:
        compute_end = np.multiply(compute, slow_compute)
        communication_end = np.multiply(communication, slow_communication)
        compute_first = compute_end + np.maximum(communication_end - compute_end, 0.0) / slow_communication
        communication_first = communication_end + np.maximum(compute_end - communication_end, 0.0) / slow_compute
        together = np.where(compute_end <= communication_end, compute_first, communication_first)
        return np.minimum(together, np.add(compute, communication))

    return {"overlapped_s": overlapped_s}

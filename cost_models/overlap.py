"""What runs beside what, and how much each slows the other.

Mist's form (EuroSys '25): while several streams run, each is slower by its factor; when one ends, the others go on.
Compute and collectives alone have a closed form; with copies to and from the host beside them, `interference` steps
through the ends of the four streams.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.interference import Slowdowns, load_slowdowns, overlapped, raised
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

    slowdowns = _slowdowns(profile)

    def exposed_beside_copies_s(compute: Array, communication: Array, copied_in: Array, copied_out: Array) -> Array:
        return np.asarray(overlapped(compute, communication, copied_in, copied_out, slowdowns) - compute)

    return {"exposed_s": exposed_s, "exposed_beside_copies_s": exposed_beside_copies_s}


def _slowdowns(profile: HardwareProfile) -> Slowdowns:
    """The four-stream factors that were measured with the profile, else of the GPU named for it, with its own pair."""
    measured = profile.slowdowns or load_slowdowns(profile.interference)
    pair = {"compute": profile.overlap.compute_slowdown, "collective": profile.overlap.communication_slowdown}
    return measured.replaced(factors=raised({**measured.factors, "compute+collective": pair}))

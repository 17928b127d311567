"""How much of a plan's time rests on measurements."""

import numpy as np

from planner.fitting import Rows
from planner.incumbent import Candidate
from planner.predict import MICRO_BATCH_OUTPUTS
from planner.space import take

__all__ = ["measured_share"]

HELD = {"layer": "layers", "embedding": "has_embedding", "head": "has_head"}


def measured_share(candidate: Candidate, chosen: Rows) -> float:
    """Share of the step time that rests on measured kernels and links, 0 to 1.

    It is that of the stage with the most work, whose bubble is made of the same work; recompute counts by the mix of
    the stage. State exchange counts as not measured, and so do ends of hops and what splitting backwards adds; what
    overlaps or waits for launches unless the profile's own run measured interference and launches. Of the global part
    counts what the slowest rank does.
    """
    pipeline = candidate.pipeline
    m, index = pipeline.layout["num_microbatches"], np.array([pipeline.index])
    work_s = m * np.sum([chosen[name] for name in MICRO_BATCH_OUTPUTS], axis=0)
    busy_s = work_s + chosen["first_s"] + chosen["last_s"]
    rank = int(np.argmax(busy_s))
    layouts = pipeline.costs.take(index).layouts
    costs = pipeline.model.measured_micro_batch(layouts, int(chosen["recompute"][rank]))
    passes_s = sum(
        chosen[count][rank] * costs[f"{unit}_{name}"][0] for unit, count in HELD.items() for name in MICRO_BATCH_OUTPUTS
    )
    plain_s = work_s[rank] / m - chosen["recompute_s"][rank] - chosen["exchange_s"][rank]
    measured_s = m * passes_s * (1.0 + chosen["recompute_s"][rank] / plain_s)
    step_s = candidate.objective_s
    last = int(np.argmax(chosen["global_s"]))
    rows = take(pipeline.options, candidate.choice[[last]])
    global_s = float(np.ravel(pipeline.model.measured_global_s(pipeline.costs, rows))[0])
    share = measured_s / busy_s[rank] * (1.0 - chosen["global_s"][last] / step_s) + global_s / step_s
    return float(np.clip(share, 0.0, 1.0))  # by rounding, nothing can be a hair below zero

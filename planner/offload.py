"""Host offload: for stages that fit in no other way, the least of their states and activations that must leave.

Fractions are Mist's (weights, gradients, optimizer states, activations; EuroSys '25) on a grid of quarters. More
offload than fits is slower at nothing gained: of each choice of the other fractions the smallest share of optimizer
states that fits is kept, and what is left is compared by its seconds.
"""

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from planner import hosts
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import OFFLOADS, take

__all__ = ["GRID", "STATES", "host_share_bytes", "kept_on_device", "least_bytes", "offloaded"]

Rows = dict[str, NDArray[Any]]

GRID = (0.0, 0.25, 0.5, 0.75, 1.0)
# (weights, gradients): gradients leave first, they move once a micro-batch and weights twice.
STATES = ((0.0, 0.0), (0.0, 0.5), (0.0, 1.0), (0.5, 0.5), (0.5, 1.0), (1.0, 1.0))


def host_share_bytes(request: PlanRequest) -> float:
    """Host memory that the GPUs of a full node may take each, if all took as much, bytes."""
    return hosts.room_bytes(request) / request.cluster.gpus_per_node


def kept_on_device(rows: Rows) -> Rows:
    """The rows with nothing offloaded."""
    return {**rows, **{name: np.zeros(len(rows["layout"])) for name in (*OFFLOADS, "host_bytes")}}


def least_bytes(model: CostModel, costs: LayoutCosts, rows: Rows) -> Rows:
    """The least `device_bytes` of each row under any offload, and the `host_bytes` of offloading everything.

    Everything is gone, and the buffers through which it comes back are left out: these grow with what is offloaded, so
    that stages of few layers can need less with less of it.
    """
    gone = {**rows, **{name: np.ones(len(rows["layout"])) for name in OFFLOADS}}
    needed = model.stages(costs, gone, "all")
    buffers = needed["offload_buffers"] * (1.0 + model.request.recipe.fragmentation_fraction)
    return {"device_bytes": needed["device_bytes"] - buffers, "host_bytes": needed["host_bytes"]}


def offloaded(model: CostModel, costs: LayoutCosts, rows: Rows, capacity: float) -> Iterator[tuple[Rows, Any]]:
    """For each choice of weights, gradients and activations, the rows with the least optimizer offload that fits.

    Yields the rows that fit, with `device_bytes` and `host_bytes`, and which of `rows` they are.
    """
    count = len(rows["layout"])
    limit = hosts.stage_limits_bytes(model.request, costs.layouts, rows)
    for (weights, gradients), activations in itertools.product(STATES, GRID):
        waiting = np.arange(count)
        for optimizer in GRID:
            if not any((weights, gradients, optimizer, activations)):
                continue  # that is not offload
            part = take(rows, waiting)
            shares = (weights, gradients, optimizer, activations)
            part |= {name: np.full(len(waiting), share) for name, share in zip(OFFLOADS, shares, strict=True)}
            needed = model.stages(costs, part, "device")
            fits = (needed["device_bytes"] <= capacity) & (needed["host_bytes"] <= limit[waiting])
            part |= needed
            yield take(part, fits), waiting[fits]
            waiting = waiting[~fits]
            if not len(waiting):
                break

"""Offload is entered where nothing else fits, and takes the least that fits."""

import numpy as np
import pytest

from planner import options, space
from planner.errors import InfeasibleError
from planner.fitting import MARGIN, with_recompute
from planner.layout_costs import LayoutCosts
from planner.offload import GRID, host_share_bytes, offloaded
from planner.predict import CostModel
from planner.request import PlanRequest, build_request
from planner.search import plan
from planner.space import OFFLOADS, take


def request_of(gibibytes: float, *, host: str = "cluster.host_memory_bytes=1000000000000") -> PlanRequest:
    """A 1B model on two L4 of so much memory, eight sequences a step."""
    overrides = [host, "model.layers=4", "workload.global_batch=8"]
    return build_request("llama3.2-1b", 2, f"{gibibytes}GiB", gpu="l4", overrides=overrides)


def test_offload_is_what_makes_it_fit() -> None:
    """What does not fit in the GPUs is planned with the host's memory, and the document says so."""
    document = plan(request_of(7.5))
    stages = document.stages
    assert all(stage.predicted.device_bytes * (1 + MARGIN) <= 7.5 * 2**30 for stage in stages)
    assert any(sum(stage.offload.model_dump().values()) > 0 for stage in stages)
    assert document.predicted.host_memory_bytes > 0
    assert any("the host's is used too" in sentence for sentence in document.assumptions)
    assert document.certificate.status == "OPTIMAL"


def test_what_fits_keeps_everything_on_the_device() -> None:
    """Where a plan without offload fits, the host holds nothing."""
    document = plan(request_of(20))
    assert document.predicted.host_memory_bytes == 0
    assert all(sum(stage.offload.model_dump().values()) == 0 for stage in document.stages)


def test_offload_never_beats_a_plan_that_needs_none() -> None:
    """Taking memory away until offload is needed slows the plan."""
    assert plan(request_of(7.5)).predicted.step_time_s > plan(request_of(20)).predicted.step_time_s


def test_a_small_host_is_a_constraint() -> None:
    """The host's memory bounds what can leave: with too little of it nothing fits, and the message says so."""
    with pytest.raises(InfeasibleError, match="offload does not make it fit either"):
        plan(request_of(7.5, host="cluster.host_memory_bytes=4000000000"))


def test_least_optimizer_offload_that_fits() -> None:
    """Of each choice of the other fractions the next smaller share of optimizer states does not fit."""
    request = request_of(7.5)
    model = CostModel(request, offload=True)
    costs = LayoutCosts.of(model, space.layouts(request, space.meshes(request)))
    count = len(costs)
    rows = {
        "layout": np.arange(count),
        "position": np.zeros(count, dtype=np.int64),
        "layers": np.maximum(4 // costs.layouts["pp"], 1),
        "zero": np.zeros(count, dtype=np.int64),
    }
    rows = with_recompute(options.stage_rows(costs.layouts, rows, request.recipe), 0, np.zeros(count, dtype=np.int64))
    capacity = request.capacity_bytes / (1 + MARGIN)
    seen = 0
    for part, origin in offloaded(model, costs, rows, capacity):
        assert np.all(part["device_bytes"] <= capacity)
        needed = model.stages(costs, part, "device")
        assert np.all(needed["host_bytes"] <= host_share_bytes(request))
        assert np.array_equal(part["layout"], rows["layout"][origin])
        step = np.searchsorted(GRID, part["offload_optimizer"])
        less = take(part, step > 0)
        less["offload_optimizer"] = np.array(GRID)[step[step > 0] - 1]
        more_than_nothing = np.sum([less[name] for name in OFFLOADS], axis=0) > 0
        assert np.all(model.stages(costs, less, "device")["device_bytes"][more_than_nothing] > capacity)
        seen += len(origin)
    assert seen

"""What must hold for every job: more of anything good never slows the plan, names and repetition change nothing."""

from functools import lru_cache
from math import inf

import numpy as np
import pytest

from planner import search
from planner.document import dumps
from planner.errors import InfeasibleError
from planner.fitting import FULL, with_recompute
from planner.layout_costs import LayoutCosts
from planner.options import positions, stage_rows
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.space import layouts, meshes, take
from tests.oracles.spaces import NO_OVERLAP, ODD_HEADS, SLOW_NETWORK, Space

JOBS = [
    Space(2, 4, 4, 0.2),
    Space(4, 5, 4, 0.1, gpus_per_node=1, changes=SLOW_NETWORK),
    Space(4, 6, 2, 0.15, changes=ODD_HEADS + SLOW_NETWORK),
    Space(4, 4, 4, 0.4, schedule="interleaved", changes=NO_OVERLAP),
]
QUICK = 2
EACH = pytest.mark.parametrize(
    "job",
    [pytest.param(job, id=job.name, marks=[pytest.mark.slow] if at >= QUICK else []) for at, job in enumerate(JOBS)],
)
ROUNDING = 1 + 1e-7


def step_of(request: PlanRequest) -> float:
    """Seconds of the best plan without a gap, infinity when nothing fits."""
    try:
        return search.plan(request).certificate.objective_s
    except InfeasibleError:
        return inf


@lru_cache
def step_s(job: Space) -> float:
    """The same of a job."""
    return step_of(job.request())


@EACH
def test_more_memory_never_slows_the_plan(job: Space) -> None:
    """At the same job, capacities in rising order give steps in falling order."""
    request = job.request()
    steps = [step_of(request.replaced(capacity_bytes=request.capacity_bytes * more)) for more in (0.95, 1.1, 1.5)]
    steps.insert(1, step_s(job))
    assert all(after <= before * ROUNDING for before, after in zip(steps, steps[1:], strict=False))


@EACH
def test_a_faster_network_never_slows_the_plan(job: Space) -> None:
    """Each tier at twice its bandwidth."""
    request = job.request()
    tiers = request.cluster.tiers
    for index, tier in enumerate(tiers):
        faster = tier.replaced(link_bandwidth_bytes_per_s=2 * tier.link_bandwidth_bytes_per_s)
        cluster = request.cluster.replaced(tiers=(*tiers[:index], faster, *tiers[index + 1 :]))
        assert step_of(request.replaced(cluster=cluster)) <= step_s(job) * ROUNDING


@EACH
def test_a_faster_device_never_slows_the_plan(job: Space) -> None:
    """Twice the peak FLOP/s, or twice the memory bandwidth."""
    request = job.request()
    gpu = request.cluster.gpu
    peaks = {dtype: 2 * flops for dtype, flops in gpu.peak_flops.items()}
    bandwidth = 2 * gpu.memory_bandwidth_bytes_per_s
    for faster in (gpu.replaced(peak_flops=peaks), gpu.replaced(memory_bandwidth_bytes_per_s=bandwidth)):
        changed = request.replaced(cluster=request.cluster.replaced(gpu=faster))
        assert step_of(changed) <= step_s(job) * ROUNDING


@EACH
def test_more_gpus_never_slow_the_plan(job: Space) -> None:
    """At a fixed batch, one GPU more, which may stand idle, and two more."""
    request = job.request()
    steps = [step_s(job)]
    for more in (1, 2):
        cluster = request.cluster.with_gpus(request.cluster.gpus + more)
        steps.append(step_of(request.replaced(cluster=cluster)))
    assert all(after <= before * ROUNDING for before, after in zip(steps, steps[1:], strict=False))


@EACH
def test_names_change_nothing(job: Space) -> None:
    """Another name of model and cluster gives the same plan, bound and prediction."""
    request = job.request()
    named = request.replaced(
        model=request.model.replaced(name="another"), cluster=request.cluster.replaced(name="elsewhere")
    )
    before, after = search.plan(request), search.plan(named)
    for field in ("parallelism", "stages", "predicted", "certificate", "alternatives", "assumptions"):
        assert getattr(before, field) == getattr(after, field)
    assert dumps(before) != dumps(after)


@EACH
def test_the_same_request_gives_the_same_bytes(job: Space) -> None:
    """Two searches, two byte-identical documents."""
    assert dumps(search.plan(job.request())) == dumps(search.plan(job.request()))


@pytest.mark.parametrize("stage_layers", [1, 3])
def test_more_data_parallelism_never_takes_more_memory(stage_layers: int) -> None:
    """For one layout and stage, a larger shard group holds no more, in every ZeRO mode, with and without recompute."""
    request = Space(8, 6, 64, 0.5, gpus_per_node=8).request()
    model = CostModel(request)
    columns = layouts(request, meshes(request))
    columns = take(columns, (columns["dp"] > 1) & (columns["dp_shard"] == columns["dp"]))
    costs = LayoutCosts.of(model, columns)
    same = ("tp", "cp", "cp_heads", "cp_ring", "pp", "vpp", "schedule", "micro_batch_size")
    key = np.column_stack([columns[name] for name in same])
    pp = columns["pp"][:, None]
    exists = np.arange(int(pp.max())) < pp
    layers = np.maximum(stage_layers, columns["vpp"][:, None])
    rows = positions(np.where(exists, layers, 0), np.where(exists, layers, -1))
    rows = stage_rows(columns, rows, request.recipe)
    compared = 0
    for zero in range(5):
        for recompute in (0, FULL):
            whole = rows["layers"] if recompute else 0 * rows["layers"]
            trial = with_recompute({**rows, "zero": np.full(len(whole), zero)}, recompute, whole)
            device = model.stages(costs, trial, "device")["device_bytes"]
            smallest: dict[tuple[int, ...], float] = {}
            for row in np.argsort(columns["dp"][rows["layout"]], kind="stable").tolist():
                group = (*key[rows["layout"][row]].tolist(), int(rows["position"][row]))
                assert device[row] <= smallest.get(group, inf) * (1 + 1e-12)
                compared += group in smallest
                smallest[group] = min(float(device[row]), smallest.get(group, inf))
    assert compared > 100

"""Questions about clusters: upgrades are searches of their own, and the cheapest cluster is the cheapest of all."""

import math
from typing import Any

import pytest

from cost_models.specs.cluster import ClusterSpec
from planner.economics import Economy, economics
from planner.errors import InfeasibleError, RequestError
from planner.report.questions import cheapest_line, upgrades_line
from planner.request import PlanRequest, build_request
from planner.search import plan
from planner.study.cheapest import cheapest_cluster
from planner.study.upgrades import best_upgrade, one_more_node, upgraded
from planner.summary import PlanSummary

SMALL: dict[str, Any] = {"model": "llama3.2-1b", "gpu": "h100-sxm", "global_batch": "64", "seq_len": "2k"}


def step_s(request: PlanRequest) -> float:
    """Seconds of a step of the best plan."""
    return plan(request).predicted.step_time_s


def test_one_more_node_is_planned_with_the_same_batch() -> None:
    """Faster by what two searches say, and dearer a token by the GPU-hours."""
    request = build_request(**SMALL, gpus=8)
    found = one_more_node(request)
    (more,) = found.upgrades
    assert more.plan is not None
    assert found.plan is not None
    assert found.plan.step_time_s == step_s(request)
    wider = request.replaced(cluster=request.cluster.with_gpus(16))
    assert more.plan.step_time_s == step_s(wider)
    assert more.faster == pytest.approx(found.plan.step_time_s / more.plan.step_time_s - 1.0)
    line = upgrades_line(found)
    assert "\n" not in line
    assert f"{more.faster:+.1%} tokens a second" in line


def test_every_upgrade_is_a_search_of_its_own() -> None:
    """More memory, faster links and more nodes: each the optimum of the changed job, sorted by sensitivity."""
    request = build_request(**SMALL, gpus=16, mem="12GB")
    found = best_upgrade(request, 1.5)
    base_s = step_s(request)
    by_name = {each.resource: each for each in found.upgrades}
    assert set(by_name) == {"memory", "NVLink", "network", "GPUs"}
    for resource, _, factor, changed in upgraded(request, 1.5):
        each = by_name[resource]
        assert each.plan is not None
        assert each.faster is not None
        assert each.plan.step_time_s == pytest.approx(step_s(changed), rel=1e-12)
        assert each.sensitivity == pytest.approx(math.log(base_s / each.plan.step_time_s) / math.log(factor))
        assert each.faster >= -0.006  # more of anything never costs more than the gap
    values = [each.sensitivity or 0.0 for each in found.upgrades]
    assert values == sorted(values, reverse=True)
    assert found.best == found.upgrades[0]
    assert by_name["GPUs"].factor == 1.5


def test_an_upgrade_can_be_what_makes_the_job_fit() -> None:
    """Where nothing fits as it is, what fits with one upgrade comes first."""
    request = build_request(**SMALL | {"global_batch": "8", "schedule": "1f1b"}, gpus=1, mem="3GB")
    request = request.replaced(cluster=request.cluster.replaced(host_memory_bytes=10**9))
    with pytest.raises(InfeasibleError):
        plan(request)
    found = best_upgrade(request, 10.0)
    assert found.plan is None
    assert found.best is not None
    assert found.best.resource in ("memory", "GPUs")
    assert "as it is nothing fits" in upgrades_line(found)
    assert any(each.plan is None and each.reasons for each in found.upgrades)


def test_links_that_there_are_not_are_not_upgraded() -> None:
    """A node without NVLink has no faster one; one GPU's network is none."""
    request = build_request(**SMALL | {"gpu": "l4"}, gpus=4)
    assert "NVLink" not in [resource for resource, *_ in upgraded(request, 2.0)]
    assert isinstance(request.cluster, ClusterSpec)
    with pytest.raises(RequestError, match="--upgrade-by must be more than 1 and at most 100, got 1"):
        best_upgrade(request, 1.0)


@pytest.mark.slow
def test_the_cheapest_cluster_is_the_cheapest_of_all() -> None:
    """Against every number of nodes of both GPUs: in time, and no other in time costs less beyond the gap."""
    flags = {**SMALL, "gpu": None, "global_batch": "256"}
    economy = Economy.of(tokens="200B", days=4, price="h100-sxm=2.5,a100-80-sxm=1.3")
    found = cheapest_cluster(flags, economy)
    best = found.answer
    assert best is not None
    assert best.economics is not None
    assert best.meets
    every = {}
    for gpu in ("h100-sxm", "a100-80-sxm"):
        for nodes in range(1, 7):
            request = build_request(**{**flags, "gpu": gpu, "nodes": nodes})
            money = economics(PlanSummary.of(plan(request)), economy)
            if money.meets_deadline:
                every[gpu, nodes] = money.cost_usd or math.inf
    assert (best.gpu, best.nodes) in every
    assert best.cost_usd <= min(every.values()) * 1.006
    assert every[best.gpu, best.nodes] == best.cost_usd
    fewest = min(nodes for gpu, nodes in every if gpu == best.gpu)
    assert fewest in [each.nodes for each in found.tried if each.gpu == best.gpu and each.meets]
    assert cheapest_line(found).startswith(f"{best.gpus} x {best.gpu} ({best.nodes} node")


def test_a_deadline_that_nothing_meets_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what the fastest cluster would take: the batch ends what more GPUs can do."""
    monkeypatch.setattr("planner.study.cheapest.MOST_NODES", 4)
    economy = Economy.of(tokens="1T", days=0.05, price="a10g=1")
    found = cheapest_cluster({**SMALL, "gpu": None, "global_batch": "2"}, economy)
    assert found.answer is None
    assert found.by_gpu == {"a10g": None}
    assert cheapest_line(found).startswith("no cluster is in time: ")


@pytest.mark.parametrize(
    ("flags", "economy", "told"),
    [
        ({}, {"days": 60, "price": "h100=2"}, "--cheapest needs --tokens"),
        ({}, {"tokens": "1T", "price": "h100=2"}, "--cheapest needs --days"),
        ({}, {"tokens": "1T", "days": 60}, "--cheapest needs --price of the GPUs to choose from"),
        ({}, {"tokens": "1T", "days": 60, "price": 2}, "--cheapest needs --price of the GPUs to choose from"),
        ({"gpus": 8}, {"tokens": "1T", "days": 60, "price": "h100=2"}, "leave --gpus out"),
    ],
)
def test_what_the_question_lacks_is_told(flags: dict[str, Any], economy: dict[str, Any], told: str) -> None:
    """Before anything is planned."""
    with pytest.raises(RequestError, match=told):
        cheapest_cluster({"model": "llama3-8b", **flags}, Economy.of(**economy))

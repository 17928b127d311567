"""Which single upgrade helps most: the job planned again with more of one resource at a time, its batch unchanged.

What the fixed plan would gain is not asked: more memory may allow a plan without recompute, a faster network another
split. So every upgrade is a search of its own, and the answer the change of the optimum.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

from cost_models.specs.cluster import ClusterSpec, NetworkTier
from planner.changes import more_nodes
from planner.economics import Economics, Economy, economics
from planner.errors import Interrupted, RequestError
from planner.request import PlanRequest
from planner.study.answers import Answer, Kept, digest_of
from planner.study.run import Backend, StudyProgress, conduct
from planner.summary import PlanSummary

__all__ = ["UPGRADE_BY", "Resource", "Upgrade", "Upgrades", "best_upgrade", "one_more_node", "upgraded"]

Resource = Literal["memory", "NVLink", "network", "GPUs", "node"]
UPGRADE_BY = 1.25
"""How much more of a resource an upgrade gives, unless told."""
LINKS: dict[Resource, tuple[str, ...]] = {"NVLink": ("nvlink", "mesh"), "network": ("network",)}


@dataclass(frozen=True)
class Upgrade:
    """One upgrade and the optimum with it, None where the job still does not fit.

    `sensitivity` is the relative gain in tokens a second over the relative gain of the resource: 1 where twice as much
    trains twice as fast, 0 where it changes nothing.
    """

    resource: Resource
    text: str
    factor: float
    plan: PlanSummary | None
    economics: Economics | None
    reasons: tuple[str, ...]
    faster: float | None
    sensitivity: float | None


@dataclass(frozen=True)
class Upgrades:
    """The optimum as it is, the upgrades by how much they help, and what the answer rests on."""

    plan: PlanSummary | None
    economics: Economics | None
    upgrades: tuple[Upgrade, ...]
    notes: tuple[str, ...]

    @property
    def best(self) -> Upgrade | None:
        """The upgrade that helps most; None where none helps."""
        first = self.upgrades[0] if self.upgrades else None
        helps = first is not None and first.plan is not None and (first.faster is None or first.faster > 0)
        return first if helps else None


def upgraded(request: PlanRequest, factor: float) -> Iterator[tuple[Resource, str, float, PlanRequest]]:
    """Every upgrade that the hardware knows: the resource, in words, by how much, and the job with it."""
    percent = f"{factor - 1.0:.0%}"
    yield (
        *("memory", f"{percent} more memory on every GPU", factor),
        request.replaced(capacity_bytes=request.capacity_bytes * factor),
    )
    for resource, kinds in LINKS.items():
        faster = _faster_links(request.cluster, kinds, factor)
        if faster != request.cluster:
            yield resource, f"{percent} faster {resource}", factor, request.replaced(cluster=faster)
    more = max(1, round(request.cluster.nodes * (factor - 1.0)))
    yield from _nodes(request, "GPUs", more)


def _nodes(request: PlanRequest, resource: Resource, more: int) -> Iterator[tuple[Resource, str, float, PlanRequest]]:
    """The job on more nodes; nothing where the network ends before."""
    for change in more_nodes(request, more):
        yield resource, change.text, change.request.cluster.gpus / request.cluster.gpus, change.request


def _faster_links(cluster: ClusterSpec, kinds: tuple[str, ...], factor: float) -> ClusterSpec:
    def faster(tier: NetworkTier) -> NetworkTier:
        bandwidth = tier.link_bandwidth_bytes_per_s * (factor if tier.kind in kinds else 1.0)
        return tier.replaced(link_bandwidth_bytes_per_s=bandwidth)

    return cluster.replaced(tiers=tuple(map(faster, cluster.tiers)))


def best_upgrade(
    request: PlanRequest,
    factor: float = UPGRADE_BY,
    *,
    economy: Economy | None = None,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Callable[[StudyProgress], None] | None = None,
) -> Upgrades:
    """The upgrades of a job by `factor`, that which helps most first. Raises RequestError, Interrupted on Ctrl-C."""
    if not 1.0 < factor <= 100.0:
        message = f"--upgrade-by must be more than 1 and at most 100, got {factor:g}"
        raise RequestError(message)
    note = "Every upgrade is planned again with the same batch; GPUs are added in whole nodes."
    return _compared(request, list(upgraded(request, factor)), note, economy or Economy(), jobs, backend, progress)


def one_more_node(
    request: PlanRequest,
    *,
    economy: Economy | None = None,
    jobs: int = 1,
    backend: Backend = "loky",
    progress: Callable[[StudyProgress], None] | None = None,
) -> Upgrades:
    """What one more node buys, its batch unchanged. Raises RequestError where the network ends, and Interrupted."""
    changes = list(_nodes(request, "node", 1))
    if not changes:
        message = f"--one-more-node: the network of {request.cluster.name} ends at {request.cluster.gpus:,} GPUs"
        raise RequestError(message)
    note = "Both are planned with the same batch; idle GPUs are allowed, so that more never take longer."
    return _compared(request, changes, note, economy or Economy(), jobs, backend, progress)


def _compared(
    request: PlanRequest,
    changes: list[tuple[Resource, str, float, PlanRequest]],
    note: str,
    economy: Economy,
    jobs: int,
    backend: Backend,
    progress: Callable[[StudyProgress], None] | None,
) -> Upgrades:
    answers = Kept(None)
    digests = [digest_of(changed) for *_, changed in changes]
    requests = {digest_of(request): request} | {
        digest: changed for digest, (*_, changed) in zip(digests, changes, strict=True)
    }
    if conduct(requests, answers, jobs=jobs, backend=backend, progress=progress):
        raise Interrupted
    base = _known(answers, digest_of(request))
    found = [
        _upgrade(resource, text, factor, base.plan, _known(answers, digest), economy)
        for digest, (resource, text, factor, _) in zip(digests, changes, strict=True)
    ]
    notes = (note, f"Differences under {request.gap:.2%} are within the gap of the searches.", *base.reasons)
    own = None if base.plan is None else economics(base.plan, economy)
    return Upgrades(base.plan, own, tuple(sorted(found, key=_rank)), notes)


def _known(answers: Kept, digest: str) -> Answer:
    found = answers.get(digest)
    assert found is not None  # the study was not interrupted
    return found


def _upgrade(
    resource: Resource, text: str, factor: float, base: PlanSummary | None, found: Answer, economy: Economy
) -> Upgrade:
    plan = found.plan
    own = None if plan is None else economics(plan, economy)
    if plan is None or base is None:
        return Upgrade(resource, text, factor, plan, own, found.reasons, None, None)
    faster = plan.tokens_per_s / base.tokens_per_s - 1.0
    sensitivity = math.log1p(faster) / math.log(factor)
    return Upgrade(resource, text, factor, plan, own, found.reasons, faster, sensitivity)


def _rank(upgrade: Upgrade) -> tuple[bool, float, float]:
    """What fits comes first, then what gains most for as much more."""
    if upgrade.plan is None:
        return True, 0.0, 0.0
    return False, -(upgrade.sensitivity or 0.0), upgrade.plan.step_time_s

"""Seconds of collectives and pipeline hops on a cluster's tiers.

A group is (ranks, stride between neighbours). Rings run through all tiers at once, so the slowest tier sets the
bandwidth part; latencies add up; where GPUs are joined without switches a group has the links between its members. See
docs/cost_model.md for the derivation and its sources.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from cost_models import links
from cost_models.specs.cluster import ClusterSpec, NetworkTier
from cost_models.specs.kernel_tables import Collective, CopyDirection
from cost_models.specs.profile import HardwareProfile

__all__ = ["bind", "coverage", "hop_seconds", "members_by_tier", "outermost_tier"]

Array = NDArray[np.float64]
COPIES: dict[str, CopyDirection] = {"from_host_s": "host_to_device", "to_host_s": "device_to_host"}
# First and last bytes, fewest and most ranks, of what was not measured.
NOTHING = (np.inf, -np.inf, np.inf, 0.0)


def members_by_tier(cluster: ClusterSpec, ranks: ArrayLike, stride: ArrayLike) -> list[Array]:
    """Members of a group in one domain of each tier, innermost first, where fewest are; the last is the whole group.

    A group that fits a domain is taken to lie inside one. A larger one starts at a multiple of its extent, so a
    domain's border can cut off as few as the greatest common divisor of extent and domain: of 12 neighbours on nodes
    of 8, four are alone on theirs. What counts of a domain is what the job has of it (`_segments`).
    """
    ranks, stride = np.broadcast_arrays(np.asarray(ranks, dtype=np.float64), np.asarray(stride, dtype=np.float64))
    extent = np.rint(ranks * stride).astype(np.int64)
    members = []
    for segment in _segments(cluster)[:-1]:
        cut_off = np.floor(np.gcd(extent, segment) / stride)
        members.append(np.where(extent <= segment, ranks, np.clip(cut_off, 1.0, ranks)))
    # The last tier reaches every GPU (ClusterSpec sees to it), whatever its domain's size.
    return [*members, ranks]


def outermost_tier(cluster: ClusterSpec, ranks: int, stride: int) -> str:
    """The name of the outermost network tier that a group of so many ranks, so far apart, crosses; "" for one rank."""
    inside, reached = 1.0, ""
    for tier, members in zip(cluster.tiers, members_by_tier(cluster, ranks, stride), strict=True):
        if float(members) > inside:
            reached = tier.name
        inside = float(members)
    return reached


def _segments(cluster: ClusterSpec) -> list[int]:
    """GPUs that the job has of one domain of each tier; of the last tier all.

    Domains of several nodes are filled alike where more than half of each is used so: 256 GPUs are 64 of each of four
    racks of 72, as Slurm's --segment asks for. A job that has no such share of its nodes is packed.
    """
    segments, inner = [], 1
    for tier in cluster.tiers[:-1]:
        domain = tier.domain_gpus or cluster.gpus
        nodes = domain // cluster.gpus_per_node
        if nodes <= 1 or domain >= cluster.gpus:
            segments.append(domain)
            continue
        packed = nodes // inner * inner
        even = next((size for size in range(packed, nodes // 2, -inner) if cluster.nodes % size == 0), packed)
        segments.append(even * cluster.gpus_per_node)
        inner = even
    return [*segments, cluster.gpus]


def bind(cluster: ClusterSpec, profile: HardwareProfile, dispatcher: str = "alltoall") -> dict[str, Callable[..., Any]]:
    """Numpy bodies of the collectives, all 0 for a single rank, and of copies to and from the host; seconds.

    Gathers and reductions take (bytes of the whole tensor, ranks, stride), exchanges (bytes a rank holds, ranks,
    stride). With the `deduplicated` dispatcher a token's copies travel to each inner domain once. Where the profile has
    curves of the innermost tier's link, what passes there takes what was measured.
    """

    def gather(tensor_bytes: ArrayLike, ranks: ArrayLike, stride: ArrayLike) -> Array:
        seconds_per_byte, latency = _ring(cluster, profile, ranks, stride)
        seconds = np.multiply(tensor_bytes, seconds_per_byte) + latency + profile.collective_base_latency_s
        return np.where((np.asarray(ranks) > 1) & (np.asarray(tensor_bytes) > 0), seconds, 0.0)

    def all_reduce(tensor_bytes: ArrayLike, ranks: ArrayLike, stride: ArrayLike) -> Array:
        return 2.0 * gather(tensor_bytes, ranks, stride)  # a reduce-scatter and an all-gather

    def all_to_all(held_bytes: ArrayLike, ranks: ArrayLike, stride: ArrayLike) -> Array:
        return _exchange(cluster, profile, held_bytes, np.inf, ranks, stride)

    def expert_exchange(held_bytes: ArrayLike, copies: ArrayLike, ranks: ArrayLike, stride: ArrayLike) -> Array:
        together = copies if dispatcher == "deduplicated" else np.inf
        return _exchange(cluster, profile, held_bytes, together, ranks, stride)

    bodies: dict[str, Callable[..., Any]] = {
        "all_gather_s": gather,
        "reduce_scatter_s": gather,
        "all_reduce_s": all_reduce,
        "all_to_all_s": all_to_all,
        "expert_exchange_s": expert_exchange,
    }
    for name, operation in _curves(dispatcher).items():
        bodies[name] = _with_curve(cluster, profile, operation, bodies[name])
    host_bandwidth = cluster.host_to_device_bandwidth_bytes_per_s

    def constant(size: Any) -> Any:
        return size / host_bandwidth

    host_memory_bandwidth = cluster.host_memory_bandwidth_bytes_per_s / cluster.gpus_per_node
    return {
        **bodies,
        "from_host_s": links.copied(profile, "host_to_device") or constant,
        "to_host_s": links.copied(profile, "device_to_host") or constant,
        "host_step_s": lambda size: size / host_memory_bandwidth,
    }


def coverage(
    cluster: ClusterSpec, profile: HardwareProfile, dispatcher: str = "alltoall"
) -> dict[str, Callable[..., Any]]:
    """For every operator of `bind`, which takes the same sizes: 1.0 where its seconds rest on measurements, else 0.0.

    1.0 for groups inside the innermost tier, or with one rank in each of its domains, and bytes that were measured on
    this GPU's own links; for copies of measured sizes.
    """
    names = ("all_gather_s", "reduce_scatter_s", "all_reduce_s", "all_to_all_s", "expert_exchange_s")
    bodies: dict[str, Callable[..., Any]] = dict.fromkeys((*names, "from_host_s", "to_host_s", "host_step_s"), _nowhere)
    for name, operation in _curves(dispatcher).items():
        inside, across = (links.covered(cluster, profile, operation, across=each) for each in (False, True))
        if inside is not None or across is not None:
            bodies[name] = _where_measured(cluster, inside or NOTHING, across or NOTHING)
    for name, direction in COPIES.items():
        bodies[name] = _of_sizes(*links.copies_covered(cluster, profile, direction))
    if profile.gpu == cluster.gpu.name and profile.is_measured("host_memory"):
        bodies["host_step_s"] = _of_sizes(0.0, np.inf)
    return bodies


def _curves(dispatcher: str) -> dict[str, Collective]:
    """The measured collective that each operator is; a dispatcher that sends copies once is not a plain exchange."""
    curves: dict[str, Collective] = {
        "all_gather_s": "all_gather",
        "reduce_scatter_s": "reduce_scatter",
        "all_reduce_s": "all_reduce",
        "all_to_all_s": "all_to_all",
    }
    return curves if dispatcher == "deduplicated" else {**curves, "expert_exchange_s": "all_to_all"}


def _with_curve(
    cluster: ClusterSpec, profile: HardwareProfile, operation: Collective, body: Callable[..., Array]
) -> Callable[..., Array]:
    """`body` with measured seconds of what passes inside the innermost tier: all of a group that lies there.

    A larger group takes at least what its members in one domain take for their part, which is the whole tensor but for
    an exchange. A group with one rank in each domain takes what was measured of such groups, where that is known.
    """
    curve, across = links.measured(cluster, profile, operation), links.measured_across(cluster, profile, operation)
    if curve is None and across is None:
        return body

    def seconds(size: ArrayLike, *others: ArrayLike) -> Array:
        size, ranks, stride = (np.asarray(value, dtype=np.float64) for value in (size, *others[-2:]))
        members = members_by_tier(cluster, ranks, stride)
        inside, apart = members[0], _is_across(members)
        part = size * inside / ranks if operation == "all_to_all" else size
        taken = body(size, *others)
        if across is not None:
            taken = np.where(apart & (size > 0), across(size, np.maximum(ranks, 2.0)), taken)
        if curve is None:
            return taken
        measured = np.where((inside > 1) & (size > 0), curve(part, np.maximum(inside, 2.0)), 0.0)
        return np.maximum(measured, np.where(inside < ranks, taken, 0.0))

    return seconds


def _is_across(members: list[Array]) -> Any:
    """Whether a group has one rank in each domain of the innermost tier, and lies within the next one."""
    within = members[1] if len(members) > 1 else members[0]
    return (members[0] == 1) & (members[-1] > 1) & (within == members[-1])


def _where_measured(
    cluster: ClusterSpec, inside: tuple[float, float, float, float], across: tuple[float, float, float, float]
) -> Callable[..., Any]:
    """1.0 for groups inside the innermost tier, or with one rank in each domain, of ranks and bytes measured there."""

    def share(size: Any, *others: Any) -> Any:
        ranks = np.asarray(others[-2], dtype=np.float64)
        members = members_by_tier(cluster, ranks, others[-1])
        near = (members[0] >= ranks) & _covers(inside, size, ranks)
        return 1.0 * (near | (_is_across(members) & _covers(across, size, ranks)))

    return share


def _covers(measured: tuple[float, float, float, float], size: Any, ranks: Any) -> Any:
    first, last, fewest_ranks, most_ranks = measured
    of_ranks = (ranks >= fewest_ranks) & (ranks <= most_ranks)
    return of_ranks & np.greater_equal(size, first) & np.less_equal(size, last)


def _of_sizes(first: float, last: float) -> Callable[..., Any]:
    """1.0 for sizes between first and last, else 0.0."""
    return lambda size: 1.0 * (np.greater_equal(size, first) & np.less_equal(size, last))


def _nowhere(*sizes: Any) -> Any:
    return 0.0 * sum(sizes)


def _exchange(
    cluster: ClusterSpec,
    profile: HardwareProfile,
    held_bytes: ArrayLike,
    together: ArrayLike,
    ranks: ArrayLike,
    stride: ArrayLike,
) -> Array:
    """Seconds of an all-to-all: every rank sends each other an equal part of what it holds, over all tiers at once.

    `together` copies of a token that go to one inner domain travel as one; infinity: every copy by itself. Spread at
    random over D domains, K copies reach D (1 - (1 - 1/D)^K) of them.
    """
    ranks, together = np.asarray(ranks, dtype=np.float64), np.asarray(together, dtype=np.float64)
    inside: Array = np.ones(())
    transfer: Array | float = 0.0
    latency: Array | float = 0.0
    for tier, members in zip(cluster.tiers, members_by_tier(cluster, ranks, stride), strict=True):
        domains = ranks / inside
        reached = domains * (1.0 - (1.0 - 1.0 / domains) ** together)
        share = np.where(inside > 1, np.minimum(1.0, reached / together), 1.0) if np.all(np.isfinite(together)) else 1.0
        leaving = np.where(members > inside, (1.0 - inside / ranks) * share, 0.0)
        transfer = np.maximum(transfer, leaving / _bandwidth(tier, profile, members - inside))
        latency = latency + np.where(members > inside, tier.latency_s, 0.0)
        inside = members
    seconds = np.multiply(held_bytes, transfer) + latency + profile.collective_base_latency_s
    return np.where((ranks > 1) & (np.asarray(held_bytes) > 0), seconds, 0.0)


def _ring(
    cluster: ClusterSpec, profile: HardwareProfile, ranks: ArrayLike, stride: ArrayLike
) -> tuple[Array | float, Array | float]:
    """Seconds a byte and latency of passing a tensor once round a ring through all tiers."""
    inside: Array = np.ones(())
    seconds_per_byte: Array | float = 0.0
    latency: Array | float = 0.0
    for index, (tier, members) in enumerate(zip(cluster.tiers, members_by_tier(cluster, ranks, stride), strict=True)):
        # What `inside` members lack of the tensor comes in over their own links of this tier, spread over all.
        arriving = np.where(members > inside, (1.0 - inside / np.asarray(ranks)) / inside, 0.0)
        seconds_per_byte = np.maximum(seconds_per_byte, arriving / _bandwidth(tier, profile, members - inside))
        domains = np.ceil(members / inside)
        # Inside the first tier a ring pays every step; across domains trees and recursive doubling pay log2.
        steps = domains - 1.0 if index == 0 else np.ceil(np.log2(domains))
        latency = latency + steps * tier.latency_s
        inside = members
    return seconds_per_byte, latency


def hop_seconds(
    cluster: ClusterSpec, profile: HardwareProfile, boundary_bytes: float, stride: int, ranks: int
) -> Array:
    """Seconds of sending one boundary tensor from each pipeline rank to the next (the last to the first), float[ranks].

    A hop uses the innermost tier whose domain holds both whole stages, of the pipeline that starts at rank 0.
    """
    if ranks == 1:
        return np.zeros(1)
    stage = np.arange(ranks)
    after = (stage + 1) % ranks
    first, last = np.minimum(stage, after) * stride, (np.maximum(stage, after) + 1) * stride - 1
    seconds = np.empty(ranks)
    sent = [links.measured(cluster, profile, "send"), links.measured_across(cluster, profile, "send")]
    curves = [*sent, *[None] * len(cluster.tiers)][: len(cluster.tiers)]
    # From the outside in: the innermost that holds both has the last word.
    for tier, segment, curve in reversed(list(zip(cluster.tiers, _segments(cluster), curves, strict=True))):
        both = (first // segment == last // segment) | (tier is cluster.tiers[-1])
        constant = tier.latency_s + boundary_bytes / _bandwidth(tier, profile, 1)
        seconds[both] = constant if curve is None else curve(boundary_bytes, 2.0)
    return seconds


def _bandwidth(tier: NetworkTier, profile: HardwareProfile, peers: ArrayLike) -> float | Array:
    """Bytes/s that a GPU reaches in one direction on a tier, to so many others of its domain.

    Switches lend any two GPUs all their links; in a mesh two GPUs have those between them alone.
    """
    reached = tier.bandwidth_bytes_per_s * profile.link_fraction[tier.links]
    if tier.kind != "mesh":
        return reached
    assert tier.domain_gpus is not None  # NetworkTier sees to it
    others = tier.domain_gpus - 1
    return np.asarray(reached * np.clip(peers, 1, others) / others)

"""Seconds of collectives and pipeline hops on a cluster's tiers.

A group is (ranks, stride between neighbours). In each tier it has some members inside one domain; what leaves an inner
domain is spread over the links of the members inside it. Rings run through all tiers at once, so the slowest tier
sets the bandwidth part; latencies add up. See docs/cost_model.md for the derivation and its sources.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.profile import HardwareProfile

__all__ = ["bind", "hop_seconds", "members_by_tier"]

Array = NDArray[np.float64]


def members_by_tier(cluster: ClusterSpec, ranks: Array, stride: Array) -> list[Array]:
    """Members of a group inside one domain of each tier, innermost first; the last is the whole group."""
    members = []
    for tier in cluster.tiers:
        reach = np.floor((tier.domain_gpus or np.inf) / np.asarray(stride, dtype=np.float64))
        members.append(np.clip(reach, 1.0, ranks))
    members[-1] = np.asarray(ranks, dtype=np.float64) + 0.0 * members[-1]
    return members


def bind(cluster: ClusterSpec, profile: HardwareProfile) -> dict[str, Callable[..., Any]]:
    """Numpy bodies of the collectives: (bytes of the whole tensor, ranks, stride) -> seconds; 0 for a single rank."""

    def gather(tensor_bytes: Array, ranks: Array, stride: Array) -> Array:
        transfer, latency = _ring(cluster, profile, ranks, stride)
        seconds = np.multiply(tensor_bytes, transfer) + latency + profile.collective_base_latency_s
        return np.where((np.asarray(ranks) > 1) & (np.asarray(tensor_bytes) > 0), seconds, 0.0)

    def all_reduce(tensor_bytes: Array, ranks: Array, stride: Array) -> Array:
        return 2.0 * gather(tensor_bytes, ranks, stride)

    return {"all_gather_s": gather, "reduce_scatter_s": gather, "all_reduce_s": all_reduce}


def _ring(cluster: ClusterSpec, profile: HardwareProfile, ranks: Array, stride: Array) -> tuple[Array, Array]:
    """Seconds a byte and latency of passing a tensor once round a ring through all tiers."""
    inside = np.ones_like(np.asarray(ranks, dtype=np.float64) + np.asarray(stride, dtype=np.float64))
    seconds_per_byte = np.zeros_like(inside)
    latency = np.zeros_like(inside)
    for index, (tier, members) in enumerate(zip(cluster.tiers, members_by_tier(cluster, ranks, stride), strict=True)):
        # Whole domains hold `inside` members; a group whose ends lie in different domains always crosses this tier.
        crossing = np.where(members > inside, (1.0 - inside / ranks) / inside, 0.0)
        bandwidth = tier.bandwidth_bytes_per_s * profile.link_fraction[tier.kind]
        seconds_per_byte = np.maximum(seconds_per_byte, crossing / bandwidth)
        domains = np.ceil(members / inside)
        # Inside the first tier a ring pays every step; across domains trees and recursive doubling pay log2.
        steps = domains - 1.0 if index == 0 else np.ceil(np.log2(domains))
        latency = latency + steps * tier.latency_s
        inside = members
    return seconds_per_byte, latency


def hop_seconds(
    cluster: ClusterSpec, profile: HardwareProfile, boundary_bytes: float, stride: int, ranks: int
) -> NDArray[np.float64]:
    """Seconds of sending one boundary tensor from each pipeline rank to the next (the last to the first), float[ranks].

    A hop uses the innermost tier whose domain holds both whole stages.
    """
    seconds = np.zeros(ranks)
    if ranks == 1:
        return seconds
    for boundary in range(ranks):
        after = (boundary + 1) % ranks
        first, last = min(boundary, after) * stride, (max(boundary, after) + 1) * stride - 1
        tier = next(
            t for t in cluster.tiers if t.domain_gpus is None or first // t.domain_gpus == last // t.domain_gpus
        )
        bandwidth = tier.bandwidth_bytes_per_s * profile.link_fraction[tier.kind]
        seconds[boundary] = tier.latency_s + boundary_bytes / bandwidth
    return seconds

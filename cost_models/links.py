"""Seconds of collectives and copies to and from the host, from measured curves by operation, ranks and bytes.

A curve gives the share of the line rate at which (ranks - 1) / ranks of the bytes pass; protocols and in-network
reduction make it far from one latency and one bandwidth. Another link of the kind has the same latencies at another
rate, so that it reaches a share at bytes in proportion to its rate.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.interpolation import LogLattice
from cost_models.specs.cluster import ClusterSpec, NetworkTier
from cost_models.specs.kernel_tables import Collective, CollectiveTables, CopyDirection
from cost_models.specs.profile import HardwareProfile

__all__ = ["copied", "copies_covered", "covered", "measured", "measured_across"]

Array = NDArray[np.float64]


def measured(
    cluster: ClusterSpec, profile: HardwareProfile, operation: Collective
) -> Callable[[Any, Any], Array] | None:
    """Seconds of (bytes, ranks) in one domain of the innermost tier; None where no curve of such a link is known.

    Beyond the measured ranks a ring's share stays and each further rank adds the tier's latency; fewer bytes than the
    fewest measured take as long as these.
    """
    table = profile.tables.collectives if profile.tables else None
    return _curve(table, cluster.tiers[0], profile, operation)


def measured_across(
    cluster: ClusterSpec, profile: HardwareProfile, operation: Collective
) -> Callable[[Any, Any], Array] | None:
    """As `measured`, of one rank in each domain of the innermost tier, over the next tier out."""
    table = profile.tables.collectives_across if profile.tables else None
    return _curve(table, cluster.tiers[1], profile, operation) if len(cluster.tiers) > 1 else None


def _curve(
    table: CollectiveTables | None, tier: NetworkTier, profile: HardwareProfile, operation: Collective
) -> Callable[[Any, Any], Array] | None:
    """Seconds of (bytes, ranks) over the links of a tier; None where the table is of other links."""
    if table is None or table.kind != tier.kind or operation not in table.operations:
        return None
    curve = table.operations[operation]
    all_ranks, all_bytes = curve.axes.values()
    share = LogLattice((all_ranks, all_bytes), curve.shares)
    # What was calibrated of the link since holds for every size.
    rate = tier.bandwidth_bytes_per_s * profile.link_fraction[tier.kind] / table.reference_share
    stretch = table.line_rate_bytes_per_s / tier.bandwidth_bytes_per_s

    def seconds(size: Any, ranks: Any) -> Array:
        counted = np.maximum(size, all_bytes[0] / stretch)
        passed = counted if operation == "send" else counted * (ranks - 1.0) / ranks
        further = np.maximum(ranks - all_ranks[-1], 0.0) * tier.latency_s
        taken: Array = passed / (rate * share(ranks, counted * stretch)) + further
        return taken

    return seconds


def copied(profile: HardwareProfile, direction: CopyDirection) -> Callable[[Any], Array] | None:
    """Seconds of a pinned copy of so many bytes between host and device; None where copies were not measured.

    Fewer bytes than the fewest measured take as long as these; nothing takes none.
    """
    table = profile.tables.copies if profile.tables else None
    if table is None or direction not in table.directions:
        return None
    curve, rate = table.directions[direction], table.line_rate_bytes_per_s
    (sizes,) = curve.axes.values()
    share = LogLattice((sizes,), curve.shares)

    def seconds(size: Any) -> Array:
        counted = np.maximum(size, sizes[0])
        taken: Array = np.greater(size, 0.0) * counted / (rate * share(counted))
        return taken

    return seconds


def covered(
    cluster: ClusterSpec, profile: HardwareProfile, operation: Collective, *, across: bool = False
) -> tuple[float, float, float, float] | None:
    """First and last bytes, fewest and most ranks, that were measured on this GPU's own link; None where nothing was.

    With `across`, of one rank in each domain of the innermost tier.
    """
    tables = profile.tables if profile.tables and cluster.gpu.name in profile.tables.gpus else None
    if tables is None or (across and len(cluster.tiers) == 1):
        return None
    table, tier = (tables.collectives_across if across else tables.collectives), cluster.tiers[int(across)]
    if table is None or table.kind != tier.kind or operation not in table.operations:
        return None
    ranks, sizes = table.operations[operation].axes.values()
    return sizes[0], sizes[-1], ranks[0], ranks[-1]


def copies_covered(cluster: ClusterSpec, profile: HardwareProfile, direction: CopyDirection) -> tuple[float, float]:
    """First and last bytes of a copy that were measured on this GPU; (inf, -inf), which is none, where nothing was."""
    tables = profile.tables if profile.tables and cluster.gpu.name in profile.tables.gpus else None
    if tables is None or tables.copies is None or direction not in tables.copies.directions:
        return float("inf"), -float("inf")
    (sizes,) = tables.copies.directions[direction].axes.values()
    return sizes[0], sizes[-1]

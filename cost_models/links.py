"""Seconds of collectives inside the innermost tier, from measured curves by operation, ranks and bytes.

A curve gives the share of the line rate at which (ranks - 1) / ranks of the bytes pass; protocols and in-network
reduction make it far from one latency and one bandwidth. Another link of the kind has the same latencies at another
rate, so that it reaches a share at bytes in proportion to its rate.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.interpolation import LogLattice
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.kernel_tables import Collective
from cost_models.specs.profile import HardwareProfile

__all__ = ["covered", "measured"]

Array = NDArray[np.float64]


def measured(
    cluster: ClusterSpec, profile: HardwareProfile, operation: Collective
) -> Callable[[Any, Any], Array] | None:
    """Seconds of (bytes, ranks) in one domain of the innermost tier; None where no curve of such a link is known.

    Beyond the measured ranks a ring's share stays and each further rank adds the tier's latency; fewer bytes than the
    fewest measured take as long as these.
    """
    table = profile.tables.collectives if profile.tables else None
    tier = cluster.tiers[0]
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
        passed = counted * (ranks - 1.0) / ranks
        further = np.maximum(ranks - all_ranks[-1], 0.0) * tier.latency_s
        taken: Array = passed / (rate * share(ranks, counted * stretch)) + further
        return taken

    return seconds


def covered(cluster: ClusterSpec, profile: HardwareProfile, operation: Collective) -> tuple[float, float, float] | None:
    """First and last bytes, and most ranks, that were measured on this GPU's own link; None where nothing was."""
    tables, tier = profile.tables, cluster.tiers[0]
    table = tables.collectives if tables and cluster.gpu.name in tables.gpus else None
    if table is None or table.kind != tier.kind or operation not in table.operations:
        return None
    ranks, sizes = table.operations[operation].axes.values()
    return sizes[0], sizes[-1], ranks[-1]

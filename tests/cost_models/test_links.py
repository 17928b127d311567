"""Measured curves of collectives: true to published points, monotone in bytes, in place inside a node only."""

import numpy as np
import pytest

from cost_models import communication, links
from cost_models.specs.catalog import default_cluster, load_cluster, load_profile
from tests.cost_models.setting import cluster_of

H100, PROFILE = default_cluster("h100-sxm", 64), load_profile("h100-sxm")
OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "all_to_all")
BOUND = communication.bind(H100, PROFILE)


@pytest.mark.parametrize(
    ("operation", "bus_bytes_per_s"),
    [("all_gather", 335e9), ("reduce_scatter", 336e9), ("all_reduce", 445e9), ("all_to_all", 315e9)],
)
def test_large_tensors_follow_the_published_bus_bandwidth(operation, bus_bytes_per_s):
    """NCCL over 8 H100s at 512 MiB (in-network reduction for the all-reduce) within 5 %, at the level of training.

    By themselves the collectives reach 0.75 of the line rate, as published; the profile has what training leaves.
    """
    bus_bytes_per_s *= PROFILE.link_fraction["nvlink"] / 0.75
    size = 2.0**29
    passes = 2 if operation == "all_reduce" else 1
    reached = passes * size * 7 / 8 / BOUND[f"{operation}_s"](size, 8.0, 1.0)
    assert reached == pytest.approx(bus_bytes_per_s, rel=0.05)


def test_small_tensors_take_the_measured_latency():
    """A few bytes over 8 H100s take 9 to 20 us, whatever the operation: 10, 10, 16 and 7 us at best."""
    for operation in OPERATIONS:
        assert 7e-6 < BOUND[f"{operation}_s"](64.0, 8.0, 1.0) < 2e-5
        assert BOUND[f"{operation}_s"](0.0, 8.0, 1.0) == 0.0
        assert BOUND[f"{operation}_s"](64.0, 1.0, 1.0) == 0.0


@pytest.mark.parametrize("gpu", ["a100-80-sxm", "h100-sxm", "h200", "b200", "gb200", "gb300", "h800-sxm"])
def test_more_bytes_never_take_less(gpu):
    """Curves are monotone in bytes for every group, inside a node and across."""
    bound = communication.bind(default_cluster(gpu, 64), load_profile(gpu))
    sizes = np.geomspace(1, 1e12, 4001)
    for operation in OPERATIONS:
        for ranks, stride in ((2.0, 1.0), (3.0, 1.0), (4.0, 2.0), (8.0, 1.0), (16.0, 1.0), (16.0, 4.0), (64.0, 1.0)):
            seconds = bound[f"{operation}_s"](sizes, ranks, stride)
            assert np.all(np.diff(seconds) >= -1e-12 * seconds[1:]), (operation, ranks, stride)


def test_a_group_across_nodes_takes_at_least_its_part_in_one():
    """16 ranks on two nodes gather no faster than 8 in one; an exchange passes half of its bytes there."""
    size = 2.0 ** np.arange(10, 34)
    inside, across = (BOUND["all_gather_s"](size, ranks, 1.0) for ranks in (8.0, 16.0))
    assert np.all(across >= inside)
    assert np.all(BOUND["all_to_all_s"](size, 16.0, 1.0) >= BOUND["all_to_all_s"](size / 2, 8.0, 1.0))
    apart = communication.bind(H100, PROFILE.replaced(tables=None))
    assert BOUND["all_gather_s"](size, 8.0, 8.0) == pytest.approx(apart["all_gather_s"](size, 8.0, 8.0))


def test_a_slower_link_of_the_kind_keeps_latencies():
    """Half the line rate takes twice as long for large tensors, and no longer for a few bytes."""
    whole, half = (
        links.measured(cluster_of(("nvlink", 8, rate, 1.0), gpus=8), PROFILE, "all_gather") for rate in (450e9, 225e9)
    )
    assert whole is not None
    assert half is not None
    assert half(2.0**31, 8.0) == pytest.approx(2 * whole(2.0**31, 8.0))
    assert half(512.0, 8.0) == pytest.approx(whole(1024.0, 8.0))


def test_more_ranks_than_measured_follow_a_ring():
    """In a rack of 72, beyond the measured ranks, the share stays and each rank adds a step's latency."""
    rack = load_cluster("gb200-nvl72", 72)
    curve = links.measured(rack, load_profile("gb200"), "all_gather")
    assert curve is not None
    four, many = curve(2.0**30, 4.0), curve(2.0**30, 64.0)
    assert many == pytest.approx(four * (63 / 64) / (3 / 4) + 60 * rack.tiers[0].latency_s)


def test_a_calibrated_link_moves_the_curve():
    """Half the link fraction halves the rate at every size."""
    slow = PROFILE.replaced(link_fraction={**PROFILE.link_fraction, "nvlink": PROFILE.link_fraction["nvlink"] / 2})
    bound = communication.bind(H100, slow)
    assert bound["all_gather_s"](1e9, 8.0, 1.0) == pytest.approx(2 * BOUND["all_gather_s"](1e9, 8.0, 1.0))


def test_a_deduplicating_dispatcher_is_no_plain_exchange():
    """Its exchange keeps the constants; the plain all-to-all beside it follows the curve."""
    bound = communication.bind(H100, PROFILE, "deduplicated")
    constant = communication.bind(H100, PROFILE.replaced(tables=None), "deduplicated")
    assert bound["expert_exchange_s"](1e8, 8.0, 8.0, 1.0) == constant["expert_exchange_s"](1e8, 8.0, 8.0, 1.0)
    assert BOUND["expert_exchange_s"](1e8, 8.0, 8.0, 1.0) == BOUND["all_to_all_s"](1e8, 8.0, 1.0)
    assert bound["all_to_all_s"](1e8, 8.0, 1.0) == BOUND["all_to_all_s"](1e8, 8.0, 1.0)


def test_coverage_of_collectives():
    """1 inside a node for measured bytes and ranks on the measured GPU; 0 across nodes, beyond, and on others."""
    share = communication.coverage(H100, PROFILE)
    assert set(share) == set(BOUND)
    sizes = np.array([1e8, 1e12])
    assert share["all_gather_s"](sizes, 8.0, 1.0).tolist() == [1.0, 0.0]
    assert share["all_gather_s"](sizes, 16.0, 1.0).tolist() == [0.0, 0.0]
    assert share["expert_exchange_s"](sizes, 8.0, 8.0, 1.0).tolist() == [1.0, 0.0]
    assert communication.coverage(H100, PROFILE, "deduplicated")["expert_exchange_s"](1e8, 8.0, 8.0, 1.0) == 0.0
    assert share["from_host_s"](1e8) == 0.0
    for gpu in ("h800-sxm", "l40s"):
        other = communication.coverage(default_cluster(gpu, 8), load_profile(gpu))
        assert other["all_reduce_s"](1e8, 4.0, 1.0) == 0.0

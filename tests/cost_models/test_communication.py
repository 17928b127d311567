"""Collectives and hops on the tiers of a cluster."""

from itertools import product
from math import ceil, log2

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.communication import bind, hop_seconds, members_by_tier
from tests.cost_models.setting import PROFILE, cluster_of

NVLINK, NETWORK = PROFILE.link_fraction["nvlink"] * 400e9, PROFILE.link_fraction["network"] * 50e9
BASE = PROFILE.collective_base_latency_s
NODES = cluster_of(("nvlink", 8, 400e9, 1.0), ("network", None, 50e9, 1.0))
PODS = cluster_of(("nvlink", 8, 400e9, 1.0), ("network", 32, 50e9, 1.0), ("network", None, 50e9, 7.0))
BOUND, DEDUPLICATED = bind(NODES, PROFILE), bind(NODES, PROFILE, "deduplicated")
powers = st.integers(0, 7).map(lambda exponent: 2**exponent)
sizes = st.floats(1, 1e12)


@given(sizes, powers)
def test_one_rank_is_free(size, stride):
    """A group of one rank, and an empty tensor, take no time."""
    for name in ("all_gather_s", "reduce_scatter_s", "all_reduce_s", "all_to_all_s"):
        assert BOUND[name](size, 1, stride) == 0.0
        assert BOUND[name](0.0, 8, stride) == 0.0


@given(sizes, sizes, powers, powers)
def test_more_bytes_or_ranks_take_longer(size, more, ranks, stride):
    """Collectives are monotone in bytes, and in ranks from one power of two to the next."""
    gather = BOUND["all_gather_s"]
    assert gather(size + more, ranks, stride) >= gather(size, ranks, stride)
    assert gather(size, 2 * ranks, stride) >= gather(size, ranks, stride)
    assert BOUND["all_reduce_s"](size, ranks, stride) == 2 * gather(size, ranks, stride)


def test_a_group_in_a_node_uses_nvlink_alone():
    """(g-1)/g of the tensor over NVLink, a step's latency for each other member."""
    for ranks, stride in ((2, 1), (4, 2), (8, 1), (2, 4), (6, 1), (3, 2)):
        wanted = 1e9 * (ranks - 1) / ranks / NVLINK + (ranks - 1) * 3e-6 + BASE
        assert BOUND["all_gather_s"](1e9, ranks, stride) == pytest.approx(wanted), (ranks, stride)


def test_a_group_across_nodes_is_bound_by_its_network_cards():
    """What a node's members lack comes in over as many cards as the node has members."""
    for ranks, stride in ((16, 1), (32, 4), (64, 8), (4, 8), (128, 2)):
        inside = max(8 // stride, 1)
        network = 1e9 * (ranks - inside) / ranks / (inside * NETWORK)
        nvlink = 1e9 * (ranks - 1) / ranks / NVLINK if inside > 1 else 0.0
        latency = (inside - 1) * 3e-6 + ceil(log2(ranks / inside)) * 14e-6 + BASE
        wanted = max(network, nvlink) + latency
        assert BOUND["reduce_scatter_s"](1e9, ranks, stride) == pytest.approx(wanted), (ranks, stride)


def placed(ranks, stride, domain):
    """Fewest members that any group of its kind has in a domain, by placing groups over a whole period."""
    extent, fewest = ranks * stride, ranks
    for start in range(0, extent * domain, extent):
        for offset in range(stride):
            members = start + offset + stride * np.arange(ranks)
            fewest = min(fewest, np.unique(members // domain, return_counts=True)[1].min())
    return fewest


@pytest.mark.parametrize("ranks", [2, 3, 5, 8, 9, 10, 12, 14, 16, 24])
@pytest.mark.parametrize("stride", [1, 2, 4, 8, 16])
def test_members_are_those_where_fewest_are(ranks, stride):
    """A group larger than a node counts the node that holds fewest of it; one that fits lies inside."""
    node, whole = members_by_tier(NODES, ranks, stride)
    assert whole == ranks
    if ranks * stride <= 8:
        assert node == ranks
    else:
        assert node == placed(ranks, stride, 8)


def test_a_part_filled_node_is_the_slowest():
    """Twelve ranks on nodes of eight: the four alone take in two thirds of the tensor over four cards."""
    wanted = 1e9 * (2 / 3) / (4 * NETWORK) + 3 * 3e-6 + 2 * 14e-6 + BASE
    assert BOUND["all_gather_s"](1e9, 12, 1) == pytest.approx(wanted)


def test_oversubscription_counts_between_pods():
    """Groups that leave a pod pay its oversubscribed links, groups inside do not."""
    bound = bind(PODS, PROFILE)
    same, plain = bound["all_gather_s"](1e9, 32, 1), BOUND["all_gather_s"](1e9, 32, 1)
    assert same == pytest.approx(plain)
    across = bound["all_gather_s"](1e9, 4, 32)
    assert across == pytest.approx(1e9 * 0.75 * 7 / NETWORK + 2 * 20e-6 + BASE)


@given(sizes, powers, powers, st.floats(1, 10), st.floats(1, 10))
def test_more_bandwidth_is_never_slower(size, ranks, stride, inner, outer):
    """Faster links of any tier never make a collective or a hop slower."""
    faster = cluster_of(("nvlink", 8, 400e9 * inner, 1.0), ("network", None, 50e9 * outer, 1.0))
    bound = bind(faster, PROFILE)
    for name in ("all_gather_s", "reduce_scatter_s", "all_reduce_s", "all_to_all_s"):
        assert bound[name](size, ranks, stride) <= BOUND[name](size, ranks, stride) * (1 + 1e-12)
    hops, slow = (hop_seconds(cluster, PROFILE, size, stride, ranks) for cluster in (faster, NODES))
    assert np.all(hops <= slow * (1 + 1e-12))


def test_an_exchange_in_a_node_uses_nvlink_alone():
    """(g-1)/g of what a rank holds over NVLink, one latency; copies that stay in a node travel one by one."""
    for ranks, stride in ((2, 1), (4, 2), (8, 1), (2, 4)):
        wanted = pytest.approx(1e9 * (ranks - 1) / ranks / NVLINK + 3e-6 + BASE)
        assert BOUND["all_to_all_s"](1e9, ranks, stride) == wanted
        for bound in (BOUND, DEDUPLICATED):
            assert bound["expert_exchange_s"](1e9, 8, ranks, stride) == wanted


def test_an_exchange_across_nodes_is_bound_by_one_network_card():
    """What goes to ranks of other nodes leaves over the rank's own card."""
    for ranks, stride in ((16, 1), (64, 1), (8, 8), (8, 4)):
        inside = max(8 // stride, 1)
        latency = 14e-6 + (3e-6 if inside > 1 else 0.0) + BASE
        wanted = 1e9 * (ranks - inside) / ranks / NETWORK + latency
        assert BOUND["all_to_all_s"](1e9, ranks, stride) == pytest.approx(wanted), (ranks, stride)


@given(sizes, sizes, powers, powers, st.integers(1, 16))
def test_exchanges_are_monotone_and_deduplication_never_slower(size, more, ranks, stride, copies):
    """More bytes or ranks take longer; sending a token once to each node never does; one copy each is no different."""
    exchange, once = BOUND["expert_exchange_s"], DEDUPLICATED["expert_exchange_s"]
    for body in (exchange, once):
        assert body(size + more, copies, ranks, stride) >= body(size, copies, ranks, stride)
    assert exchange(size, copies, 2 * ranks, stride) >= exchange(size, copies, ranks, stride)
    assert exchange(size, copies, ranks, stride) == BOUND["all_to_all_s"](size, ranks, stride)
    assert once(size, copies, ranks, stride) <= exchange(size, copies, ranks, stride) * (1 + 1e-12)
    assert once(size, 1, ranks, stride) == pytest.approx(exchange(size, 1, ranks, stride))


def test_deduplicated_copies_reach_as_many_nodes_as_drawn_ones():
    """Copies of tokens drawn at random over four nodes: as many leave their node as are counted, within 1 %."""
    copies, nodes, tokens = 8, 4, 20_000
    drawn = np.random.default_rng(0).integers(0, nodes, (tokens, copies))
    leaving = np.mean([np.any(drawn == node, axis=1) for node in range(1, nodes)]) * (nodes - 1)
    latency = 14e-6 + 3e-6 + BASE
    transfer = DEDUPLICATED["expert_exchange_s"](1e9, copies, 8 * nodes, 1) - latency
    assert transfer == pytest.approx(1e9 / copies * leaving / NETWORK, rel=0.01)


@pytest.mark.parametrize("nodes", [2, 3, 4, 8])
@pytest.mark.parametrize("copies", [1, 2, 3, 4])
def test_deduplicated_bytes_of_every_way_to_deal_copies(nodes, copies):
    """Over all ways to deal a token's copies to nodes: each foreign node among them takes in the token once."""
    ways = list(product(range(nodes), repeat=copies))
    foreign = sum(len(set(way) - {0}) for way in ways) / len(ways)
    plain = sum(sum(node > 0 for node in way) for way in ways) / len(ways)
    latency = 14e-6 + 3e-6 + BASE
    for bound, leaving in ((DEDUPLICATED, foreign), (BOUND, plain)):
        transfer = bound["expert_exchange_s"](1e12, copies, 8 * nodes, 1) - latency
        assert transfer * NETWORK == pytest.approx(1e12 / copies * leaving, rel=1e-9)


def test_copies_to_and_from_the_host():
    """Copies take the host link of a GPU; a host steps the states of all its GPUs from one memory."""
    for name in ("from_host_s", "to_host_s"):
        assert BOUND[name](1e9) == pytest.approx(1e9 / NODES.host_to_device_bandwidth_bytes_per_s)
    assert BOUND["host_step_s"](1e9) == pytest.approx(8e9 / NODES.host_memory_bandwidth_bytes_per_s)


def test_arrays_equal_scalars():
    """A row of an array call is the scalar call."""
    ranks, stride = np.array([1.0, 2.0, 12.0, 64.0]), np.array([1.0, 4.0, 1.0, 2.0])
    values = BOUND["all_reduce_s"](1e8, ranks, stride)
    assert values.tolist() == [float(BOUND["all_reduce_s"](1e8, r, s)) for r, s in zip(ranks, stride, strict=True)]


def over(bandwidth, latency):
    return pytest.approx(latency + 1e7 / bandwidth)


def test_hops_take_the_innermost_tier_that_holds_both_stages():
    """Stages of four ranks on nodes of eight: every other hop stays inside, the last goes back over the network."""
    inside, across = over(NVLINK, 3e-6), over(NETWORK, 14e-6)
    assert hop_seconds(NODES, PROFILE, 1e7, 4, 4).tolist() == [inside, across, inside, across]
    assert hop_seconds(NODES, PROFILE, 1e7, 2, 4).tolist() == [inside] * 4
    assert hop_seconds(NODES, PROFILE, 1e7, 8, 3).tolist() == [across] * 3
    assert hop_seconds(NODES, PROFILE, 1e7, 3, 3).tolist() == [inside, across, across]


def test_two_stages_share_one_link():
    """With two stages the way back is the way there; one stage sends nothing."""
    for stride in (1, 4, 8, 64):
        there, back = hop_seconds(PODS, PROFILE, 1e7, stride, 2)
        assert there == back
    assert hop_seconds(NODES, PROFILE, 1e7, 8, 1).tolist() == [0.0]


def test_hops_between_pods():
    """Of stages of 16 ranks in pods of 32, every other hop leaves its pod and pays the oversubscription."""
    inside, across = over(NETWORK, 14e-6), over(NETWORK / 7, 20e-6)
    assert hop_seconds(PODS, PROFILE, 1e7, 16, 4).tolist() == [inside, across, inside, across]


@given(st.integers(1, 70), st.integers(2, 40))
def test_hops_equal_a_loop_over_boundaries(stride, ranks):
    """Every boundary by itself: the first tier, from the inside, whose domain holds both stages whole."""
    hops = hop_seconds(PODS, PROFILE, 1e7, stride, ranks)
    for boundary in range(ranks):
        after = (boundary + 1) % ranks
        members = [stage * stride + rank for stage in (boundary, after) for rank in range(stride)]
        tier = next(t for t in PODS.tiers if t.domain_gpus is None or len({m // t.domain_gpus for m in members}) == 1)
        rate = tier.bandwidth_bytes_per_s * PROFILE.link_fraction[tier.kind]
        assert hops[boundary] == pytest.approx(tier.latency_s + 1e7 / rate)

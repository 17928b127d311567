"""What a cluster's network does to collectives: shared cards, oversubscription, rank order, PCIe, large domains."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.communication import bind, hop_seconds, members_by_tier
from cost_models.specs.catalog import load_cluster, load_profile
from tests.cost_models.setting import PROFILE, cluster_of

COLLECTIVES = ("all_gather_s", "reduce_scatter_s", "all_reduce_s", "all_to_all_s")
GPUS, NVLINK, NETWORK = 1024, 400e9, 50e9
NODES = cluster_of(("nvlink", 8, NVLINK, 1.0), ("network", None, NETWORK, 1.0))
RACKS = cluster_of(("nvlink", 64, NVLINK, 1.0), ("network", None, NETWORK, 1.0))
powers = st.integers(0, 6).map(lambda exponent: 2**exponent)
sizes = st.floats(1, 1e12)


def seconds(cluster, name, size, ranks, stride=1):
    """Seconds of one collective."""
    return float(bind(cluster, PROFILE)[name](size, ranks, stride))


def seconds_a_byte(cluster, name, ranks, stride=1):
    """What each further byte takes, latencies left out."""
    return (seconds(cluster, name, 2e12, ranks, stride) - seconds(cluster, name, 1e12, ranks, stride)) / 1e12


def preset(name, gpus):
    """The bodies of a preset's collectives with its own profile."""
    cluster = load_cluster(name, gpus)
    return bind(cluster, load_profile(cluster.gpu.name))


def sharing(gpus_per_card):
    """Nodes of eight whose GPUs share network cards."""
    tier = NODES.tiers[1].replaced(links_per_gpu=1 / gpus_per_card)
    return NODES.replaced(tiers=(NODES.tiers[0], tier))


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("gpus_per_card", [2, 4, 8])
def test_gpus_that_share_a_card_are_slower_by_their_number(name, gpus_per_card):
    """Four GPUs on one card take four times as long between nodes as with a card each, and as long inside."""
    shared, alone = sharing(gpus_per_card), sharing(1)
    between = seconds_a_byte(shared, name, 8, 8) / seconds_a_byte(alone, name, 8, 8)
    assert between == pytest.approx(gpus_per_card)
    assert seconds(shared, name, 1e9, 8) == seconds(alone, name, 1e9, 8)


def test_hops_share_cards_too():
    """A stage boundary between nodes takes as many times longer as GPUs share a card."""
    shared, alone = (hop_seconds(sharing(count), PROFILE, 1e9, 8, 2)[0] - 14e-6 for count in (4, 1))
    assert shared == pytest.approx(4 * alone)


def test_a_node_takes_in_a_tensor_over_all_its_cards():
    """Sixteen neighbours on two nodes use eight cards at a node, two ranks on two nodes one: an eighth of the time."""
    quick = cluster_of(("nvlink", 8, 100 * NVLINK, 1.0), ("network", None, NETWORK, 1.0))
    one_card, eight_cards = (seconds_a_byte(quick, "all_gather_s", *group) for group in ((2, 8), (16, 1)))
    assert one_card == pytest.approx(8 * eight_cards)
    # An exchange gains nothing: each rank sends its own.
    of_two, of_sixteen = (seconds_a_byte(NODES, "all_to_all_s", ranks, stride) for ranks, stride in ((2, 8), (16, 1)))
    assert of_two == pytest.approx(of_sixteen)


@given(st.sampled_from(COLLECTIVES), sizes, powers, powers, st.floats(1, 16), st.floats(1, 2))
def test_oversubscription_never_helps(name, size, ranks, stride, over, more):
    """The more the links of a tier are outnumbered, the longer a group that crosses it takes, and no other."""

    def pods(factor):
        return cluster_of(("nvlink", 8, NVLINK, 1.0), ("network", 32, NETWORK, 1.0), ("network", None, NETWORK, factor))

    less, greater = (seconds(pods(factor), name, size, ranks, stride) for factor in (over, over * more))
    assert greater >= less
    if ranks * stride <= 32:
        assert greater == less


@given(st.sampled_from(COLLECTIVES), sizes, powers, powers)
def test_ranks_that_are_farther_apart_are_never_faster(name, size, ranks, stride):
    """The group that neighbours in rank order form is the cheapest: which axis is innermost is worth a choice."""
    near, far = (seconds(NODES, name, size, ranks, distance) for distance in (stride, 2 * stride))
    assert far >= near


@given(powers, st.integers(2, 16), st.floats(1e6, 1e12))
def test_stages_that_are_farther_apart_are_never_nearer(stride, ranks, size):
    """A pipeline inside the data-parallel axis has its hops on inner tiers, at the cost of the gathers."""
    near, far = (hop_seconds(NODES, PROFILE, size, distance, ranks) for distance in (stride, 2 * stride))
    assert np.all(far >= near)


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("ranks", [8, 16, 64, 256])
def test_a_larger_domain_moves_a_byte_no_slower(name, ranks):
    """NVLink over 64 GPUs instead of 8: as fast for up to 8 ranks, never slower, and faster for many."""
    small, large = (seconds_a_byte(cluster, name, ranks) for cluster in (NODES, RACKS))
    assert large <= small * (1 + 1e-9)
    assert large == pytest.approx(small) if ranks <= 8 else ranks < 64 or large < small


def test_tensor_parallelism_over_sixteen_wants_one_domain():
    """TP 16 of an 8k residual stream: faster inside an NVL72 than over two nodes of eight B200s.

    With a card for each GPU the two nodes are bound by NVLink nearly as much.
    """
    stream = 2 * 8192 * 16384
    racks, nodes = (preset(name, 144)["all_gather_s"] for name in ("gb200-nvl72", "dgx-b200"))
    assert racks(stream, 16, 1) < nodes(stream, 16, 1)
    assert nodes(stream, 8, 1) < nodes(stream, 16, 1)
    single = load_cluster("gb200-nvl72", 144)
    islands = single.replaced(tiers=(single.tiers[0].replaced(domain_gpus=4), single.tiers[1]))
    assert nodes(stream, 16, 1) < bind(islands, load_profile("gb200"))["all_gather_s"](stream, 16, 1)


def test_experts_over_64_gpus_want_one_domain():
    """gpt-oss-120b: EP 64 is good in an NVL72; on islands of eight GPUs it is far slower than EP 8."""
    sent = 4 * 4096 * 4 * 2880 * 2
    racks, nodes = (preset(name, 64)["expert_exchange_s"] for name in ("gb200-nvl72", "dgx-b200"))
    assert racks(sent, 4, 64, 1) < 0.2 * nodes(sent, 4, 64, 1)
    assert nodes(sent, 4, 8, 1) < 0.2 * nodes(sent, 4, 64, 1)
    assert racks(sent, 4, 64, 1) < 1.5 * racks(sent, 4, 8, 1)


@pytest.mark.parametrize(("pcie", "nvlink"), [("a100-80-pcie-node", "dgx-a100"), ("h100-pcie-node", "dgx-h100")])
def test_nodes_without_nvlink_are_slower_inside_and_between(pcie, nvlink):
    """The same collectives take longer over PCIe, and between such nodes, whose GPUs share a card, longer still."""
    slow, fast = preset(pcie, 64), preset(nvlink, 64)
    for name in COLLECTIVES:
        assert slow[name](1e9, 8, 1) > 3 * fast[name](1e9, 8, 1), name
        assert slow[name](1e9, 16, 1) > slow[name](1e9, 8, 1), name
        assert slow[name](1e9, 8, 8) > 2 * fast[name](1e9, 8, 8), name


def test_pairs_of_bridged_cards_share_their_node():
    """H100 NVL: two cards on a bridge are fast, four go over PCIe, sixteen over one card of the node."""
    gather = preset("h100-nvl-node", 64)["all_gather_s"]
    pair, four, sixteen = (float(gather(1e9, ranks, 1)) for ranks in (2, 4, 16))
    assert pair < four / 3
    assert four < sixteen


@pytest.mark.parametrize(
    ("gpus", "segment"),
    [(72, 72), (144, 72), (256, 64), (288, 72), (512, 64), (576, 72), (1024, 64), (240, 60), (100, 72), (148, 72)],
)
def test_racks_are_filled_alike(gpus, segment):
    """GB200 has hosts of 4 GPUs in domains of 72: of each a job has as much, more than half; else domains are full.

    256 GPUs are 64 of each of four racks, as with Slurm's --segment=16; 25 or 37 hosts divide into no such parts.
    """
    racks = load_cluster("gb200-nvl72", gpus)
    assert (racks.gpus_per_node, racks.tiers[0].domain_gpus) == (4, 72)
    ranks = np.arange(4, gpus + 1, 4)
    inside, whole = members_by_tier(racks, ranks, 1)
    expected = np.where(ranks <= segment, ranks, np.gcd(ranks, segment)) if gpus > 72 else ranks
    assert inside.tolist() == expected.tolist()
    assert whole.tolist() == ranks.tolist()


def test_groups_of_64_do_not_leave_their_rack():
    """On 256 GPUs of NVL72s every aligned 64 are in one domain; of hops between stages of 32 every other leaves it."""
    racks, profile = load_cluster("gb200-nvl72", 256), load_profile("gb200")
    exchange = bind(racks, profile)["all_to_all_s"]
    assert exchange(1e9, 128, 1) > 3 * exchange(1e9, 64, 1)
    hops = hop_seconds(racks, profile, 1e9, 32, 8)
    assert np.all(hops[1::2] > 3 * hops[::2])


@pytest.mark.parametrize(("gpus", "rack", "pod"), [(768, 64, 256), (480, 48, 240), (720, 48, 240), (592, 64, 256)])
def test_racks_inside_pods(gpus, rack, pod):
    """What a job has of a pod is made of what it has of racks: of 60 nodes six a rack and thirty a pod; of 74 no part.

    Racks have 8 nodes of 8, pods 32 nodes.
    """
    tiers = ("nvlink", 64, NVLINK, 1.0), ("network", 256, NETWORK, 1.0), ("network", None, NETWORK, 4.0)
    in_rack, in_pod, whole = members_by_tier(cluster_of(*tiers, gpus=gpus), gpus, 1)
    assert (int(in_rack), int(in_pod), int(whole)) == (np.gcd(gpus, rack), np.gcd(gpus, pod), gpus)


def test_four_gpus_a_node():
    """Nodes of four A100s: a group of eight has four members in each."""
    node, _ = members_by_tier(load_cluster("a100-4gpu", 8), np.array([2, 4, 8]), 1)
    assert node.tolist() == [2, 4, 4]


MESH = cluster_of(("mesh", 8, NVLINK, 1.0), ("network", None, NETWORK, 1.0))


def test_neighbours_in_a_mesh_have_the_link_between_them_alone():
    """Of eight GPUs each with a link to each other, a stage boundary takes seven times as long as behind switches."""
    meshed, switched = (hop_seconds(cluster, PROFILE, 1e9, 1, 8)[0] - 3e-6 for cluster in (MESH, NODES))
    assert meshed == pytest.approx(7 * switched)
    across = [hop_seconds(cluster, PROFILE, 1e9, 8, 2)[0] for cluster in (MESH, NODES)]
    assert across[0] == across[1]


@pytest.mark.parametrize("name", COLLECTIVES)
@pytest.mark.parametrize("ranks", [2, 4, 8, 16])
def test_a_group_in_a_mesh_has_the_links_between_its_members(name, ranks):
    """Of ranks - 1 links out of seven; a group that fills the node, or more, loses nothing."""
    quick = cluster_of(("nvlink", 8, NVLINK, 1.0), ("network", None, 100 * NVLINK, 1.0))
    meshed = quick.replaced(tiers=(MESH.tiers[0], quick.tiers[1]))
    slower = seconds_a_byte(meshed, name, ranks) / seconds_a_byte(quick, name, ranks)
    assert slower == pytest.approx(7 / (min(ranks, 8) - 1))


@pytest.mark.parametrize(
    ("name", "bytes_per_s"), [("mi300x-node", 64e9), ("mi325x-node", 64e9), ("mi355x-node", 76.8e9)]
)
def test_nodes_without_switches(name, bytes_per_s):
    """Two neighbours on AMD's platforms reach 0.7 of one Infinity Fabric link."""
    cluster = load_cluster(name, 8)
    profile = load_profile(cluster.gpu.name)
    hop = hop_seconds(cluster, profile, 1e9, 1, 8)[0] - cluster.tiers[0].latency_s
    assert hop == pytest.approx(1e9 / (0.7 * bytes_per_s))

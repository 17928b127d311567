"""Clusters: nodes, tiers that nest, and changed sizes."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.specs.catalog import load_cluster
from cost_models.specs.cluster import ClusterSpec, NetworkTier
from cost_models.specs.errors import SpecError
from tests.strategies import cluster_specs


def tier(domain_gpus: int | None, oversubscription: float = 1.0) -> NetworkTier:
    """Return a network tier of one 50 GB/s link for two GPUs."""
    return NetworkTier(
        name="t",
        kind="network",
        domain_gpus=domain_gpus,
        link_bandwidth_bytes_per_s=50e9,
        links_per_gpu=0.5,
        latency_s=1e-5,
        oversubscription=oversubscription,
    )


def with_domains(*domains: int | None, gpus: int = 64) -> ClusterSpec:
    """Return a DGX H100 cluster with other tiers."""
    return load_cluster("dgx-h100", gpus).replaced(tiers=tuple(tier(domain) for domain in domains))


@pytest.mark.parametrize(("gpus", "nodes"), [(1, 1), (8, 1), (9, 2), (16, 2), (17, 3), (10_000_000, 1_250_000)])
def test_nodes_are_rounded_up(gpus: int, nodes: int) -> None:
    """A part-filled node is a node."""
    assert load_cluster("dgx-h100", gpus).nodes == nodes


def test_the_bandwidth_of_a_gpu_shares_links_and_oversubscription() -> None:
    """50 GB/s, a link for two GPUs, outnumbered five to one: 5 GB/s."""
    assert tier(None, oversubscription=5.0).bandwidth_bytes_per_s == 5e9


@pytest.mark.parametrize("domain_gpus", [None, 1])
def test_a_mesh_has_an_end(domain_gpus: int | None) -> None:
    """How many GPUs it joins decides what is between any two."""
    mesh = load_cluster("mi300x-node", 8).tiers[0]
    with pytest.raises(SpecError, match=f"domain_gpus must be >= 2 where kind is mesh, got {domain_gpus}"):
        mesh.replaced(domain_gpus=domain_gpus)


@pytest.mark.parametrize(
    ("domains", "message"),
    [
        ((None, 8), r"^cluster\.tiers\[0\]\.domain_gpus must be a number"),
        ((8, 8), r"^cluster\.tiers\[1\]\.domain_gpus must be a larger multiple of 8, got 8$"),
        ((8, 20, None), r"^cluster\.tiers\[1\]\.domain_gpus must be a larger multiple of 8, got 20$"),
        ((8, 32), r"^cluster\.gpus must be <= 32, the domain of the last tier 't', got 64$"),
    ],
)
def test_tiers_must_nest_and_cover_the_cluster(domains: tuple[int | None, ...], message: str) -> None:
    """Domains grow, each a multiple of the one inside, and the last reaches every GPU."""
    with pytest.raises(SpecError, match=message):
        with_domains(*domains)


def test_domains_that_nest_are_accepted() -> None:
    """The NVLink domain may be smaller or larger than a node, and the last domain may be exact."""
    assert with_domains(4, 8, 64).gpus == 64
    assert with_domains(32, None).gpus_per_node == 8


@given(cluster_specs(), st.integers(1, 1000))
def test_resizing_changes_only_the_number_of_gpus(cluster: ClusterSpec, count: int) -> None:
    """with_gpus and with_nodes keep everything else."""
    resized = cluster.with_gpus(count)
    assert resized.gpus == count
    assert resized.with_gpus(cluster.gpus) == cluster
    assert cluster.with_nodes(count).gpus == count * cluster.gpus_per_node
    assert cluster.with_nodes(count).nodes == count


def test_resizing_out_of_range_is_refused() -> None:
    """No nodes is no cluster."""
    with pytest.raises(SpecError, match=r"^cluster\.gpus must be >= 1, got 0$"):
        load_cluster("dgx-h100", 8).with_nodes(0)

"""GPUs by the names that tables print, clusters by node size and network."""

import pytest

from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError
from planner.evaluate.hardware import cluster_of, gpu_named


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("A100-SXM-80GB", "a100-80-sxm"),
        ("NVIDIA A100 40GB PCIe", "a100-40-pcie"),
        ("H100-SXM-80GB", "h100-sxm"),
        ("B200-SXM-180GB", "b200"),
        ("GB300-288GB", "gb300"),
        ("V100-SXM2-16GB", "v100-16"),
        ("MI300X", "mi300x"),
        ("NVIDIA A100-SXM4", "a100-80-sxm"),
        ("A100 PCIe", "a100-80-pcie"),
    ],
)
def test_gpus_are_read_as_tables_print_them(text, name):
    """Family, form and memory find the catalog's entry."""
    assert gpu_named(text).name == name


def test_memory_that_is_not_said_is_told():
    """Of a GPU with 40 or 80 GB the usual one is taken, and said; one whose memories lie close needs no word."""
    for text, told in (("A100", True), ("A100-SXM-80GB", False), ("H100", False)):
        cells = Cells({"gpu": text})
        cluster_of(cells, 8)
        assert any("memory is not said" in sentence for sentence in cells.assumed) == told


def test_an_unknown_gpu_is_refused():
    """A GPU of no known family is unsupported, a missing one invalid."""
    with pytest.raises(UnsupportedRunError, match="TPUv5"):
        gpu_named("TPUv5")
    with pytest.raises(InvalidRunError, match="gpu is missing"):
        gpu_named("")


@pytest.mark.parametrize(
    ("interconnect", "gigabytes"),
    [
        ("1600 Gbps/node RoCE", 25.0),
        ("4x100Gb RoCE per node", 6.25),
        ("NVLink + 400Gb/s RDMA per GPU", 50.0),
        ("NVLink3 + 8x200G HDR IB", 25.0),
        ("RoCE between nodes", 50.0),
    ],
)
def test_the_network_is_what_the_row_names(interconnect, gigabytes):
    """Line rates per node are shared by its GPUs; text without a rate leaves the preset's."""
    cells = Cells({"gpu": "H100", "gpus_per_node": "8", "interconnect": interconnect})
    assert cluster_of(cells, 64).tiers[-1].bandwidth_bytes_per_s == pytest.approx(gigabytes * 1e9)


def test_nodes_have_the_size_of_the_row():
    """A node size of no preset resizes one of the same family; its first tier spans the node."""
    cluster = cluster_of(Cells({"gpu": "A800-SXM-80GB", "gpus_per_node": "6"}), 12)
    assert (cluster.gpus_per_node, cluster.tiers[0].domain_gpus, cluster.nodes) == (6, 6, 2)

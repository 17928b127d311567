"""The GPU and the cluster of a row: catalog entries, with the node size and the network that the row names."""

import re
from functools import lru_cache

from cost_models.specs import catalog
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError, UnknownNameError
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.measured_profile import MeasuredProfile
from planner.evaluate.cells import Cells
from planner.evaluate.errors import InvalidRunError, UnsupportedRunError

__all__ = ["cluster_of", "gpu_named"]

FAMILY = re.compile(r"\b([A-Za-z]{1,4}\d{1,4}[A-Za-z]?)\b")
MEMORY = re.compile(r"(\d+)\s*G(?:i?B)?\b", re.IGNORECASE)
FORMS = ("pcie", "nvl", "sxm")
# "4x100Gb RoCE per node", "1600 Gbps/node", "400Gb/s RDMA per GPU", "8x200G HDR IB"
NETWORK = re.compile(r"(?:(\d+)\s*x\s*)?(\d+)\s*G(?:b|bit)?(?:ps|/s)?\b([^+,;]*)", re.IGNORECASE)
# Memories of one GPU (40 and 80 GB of an A100) that differ by this decide whether a run fits.
FAR_APART = 1.5
BYTES_PER_GIGABIT = 0.125e9


@lru_cache(maxsize=1024)
def gpu_named(text: str) -> GpuSpec:
    """The catalog's GPU for a name as tables print it: "A100-SXM-80GB", "NVIDIA H100 PCIe". Raises a RunError."""
    if not text:
        message = "gpu is missing"
        raise InvalidRunError(message)
    try:
        return catalog.load_gpu(text)
    except UnknownNameError:
        pass
    entries = _family(text)
    if not entries:
        message = f"gpu must be a GPU of the catalog ({', '.join(catalog.names('gpus'))}), got {text}"
        raise UnsupportedRunError(message)
    form = next((form for form in FORMS if form in text.lower()), "sxm")
    memory = MEMORY.search(text)
    usual = _usual_memory_bytes(text)

    def distance(gpu: GpuSpec) -> tuple[float, bool, float, str]:
        off = abs(gpu.nominal_memory_bytes / 1e9 - float(memory[1])) if memory else 0.0
        return off, form not in gpu.name, abs(gpu.nominal_memory_bytes - usual), gpu.name

    return min(entries, key=distance)


def _family(text: str) -> list[GpuSpec]:
    """The catalog's GPUs of the family that a name contains."""
    family = FAMILY.search(text)
    names = catalog.names("gpus") if family else ()
    return [catalog.load_gpu(name) for name in names if family and _is_of_family(name, catalog.key(family[1]))]


def _usual_memory_bytes(text: str) -> float:
    """Nominal memory of the GPU that goes by its family's name alone; 0 where none does."""
    family = FAMILY.search(text)
    try:
        return catalog.load_gpu(family[1]).nominal_memory_bytes if family else 0
    except UnknownNameError:
        return 0


def _tell_memory(cells: Cells, gpu: GpuSpec) -> None:
    """None; that a row does not say which of a GPU's memories it had is told where they are far apart."""
    text = cells.text("gpu")
    sizes = [other.nominal_memory_bytes for other in _family(text)]
    if sizes and not MEMORY.search(text) and max(sizes) > FAR_APART * min(sizes):
        cells.assume("gpu", gpu.name, "its memory is not said")


def _is_of_family(name: str, family: str) -> bool:
    """Whether a catalog name is of the family ("a100" of "a100-80-sxm", "rtx4090" of "rtx-4090")."""
    return name.split("-")[0] == family or catalog.key(name) == family


def cluster_of(cells: Cells, gpus: int, measured: MeasuredProfile | None = None) -> ClusterSpec:
    """The cluster of a row: the preset of its GPU and node size, with the network that `interconnect` names.

    A GPU that is the device of a `measured` profile is that device, as it was measured where no preset has it. Raises
    a RunError.
    """
    node = cells.whole("node_size") or cells.whole("gpus_per_node")
    device = measured.cluster.gpu if measured else None
    if measured and device and catalog.key(cells.text("gpu")) == catalog.key(device.name) not in catalog.keys("gpus"):
        return _of_as_many(measured.cluster, gpus)
    gpu = gpu_named(cells.text("gpu"))
    _tell_memory(cells, gpu)
    preset = _cluster(cells.text("cluster"), gpu.name, node, cells.text("interconnect"))
    return _of_as_many(preset.replaced(gpu=device) if device and device.name == gpu.name else preset, gpus)


def _of_as_many(preset: ClusterSpec, gpus: int) -> ClusterSpec:
    try:
        return preset.with_gpus(gpus)
    except SpecError as error:
        raise InvalidRunError(str(error)) from error


@lru_cache(maxsize=1024)
def _cluster(named: str, gpu: str, node: int | None, interconnect: str) -> ClusterSpec:
    """The cluster of one GPU that these cells describe."""
    preset = _preset(named, catalog.load_gpu(gpu), node)
    tiers = preset.tiers
    if node is not None and node != preset.gpus_per_node:
        if tiers[0].domain_gpus == preset.gpus_per_node:
            tiers = (tiers[0].replaced(domain_gpus=node), *tiers[1:])
        preset = preset.replaced(gpus_per_node=node, tiers=tiers)
    bandwidth = _network_bytes_per_s(interconnect, preset.gpus_per_node)
    if bandwidth is not None and tiers[-1].kind == "network":
        outer = tiers[-1].replaced(link_bandwidth_bytes_per_s=bandwidth, links_per_gpu=1.0)
        preset = preset.replaced(tiers=(*tiers[:-1], outer))
    return preset


def _preset(named: str, gpu: GpuSpec, node: int | None) -> ClusterSpec:
    """The preset that the row names, else of those with its GPU the one with its node size, else the usual one."""
    if named:
        try:
            return catalog.load_cluster(named, 1).replaced(gpu=gpu)
        except SpecError as error:
            raise InvalidRunError(str(error)) from error
    try:
        usual = catalog.default_cluster(gpu.name, 1)
    except UnknownNameError:
        usual = catalog.default_cluster(_relative(gpu), 1).replaced(gpu=gpu)
    if node is None or node == usual.gpus_per_node:
        return usual
    family, kind = gpu.name.split("-")[0], usual.tiers[0].kind
    presets = (catalog.load_cluster(name, 1) for name in catalog.names("clusters"))
    others = [spec for spec in presets if spec.gpu.name.split("-")[0] == family and spec.tiers[0].kind == kind]
    # Nodes of another size are another machine than the usual one.
    others.sort(key=lambda spec: (spec.gpus_per_node != node, spec.name == usual.name))
    return others[0].replaced(gpu=gpu)


def _relative(gpu: GpuSpec) -> str:
    """A GPU of the same family that has a preset."""
    family = gpu.name.split("-")[0]
    presets = [catalog.load_cluster(name, 1).gpu.name for name in catalog.names("clusters")]
    found = [name for name in presets if name.split("-")[0] == family]
    if not found:
        message = f"gpu must be one of a cluster preset, got {gpu.name}"
        raise UnsupportedRunError(message)
    return found[0]


def _network_bytes_per_s(text: str, gpus_per_node: int) -> float | None:
    """What the network gives one GPU in one direction, bytes/s; None when the text says nothing of it."""
    for match in NETWORK.finditer(text):
        count, gigabits, rest = int(match[1] or 1), int(match[2]), match[3].lower()
        total = count * gigabits * BYTES_PER_GIGABIT
        if "gpu" in rest:
            return total
        return total / gpus_per_node
    return None

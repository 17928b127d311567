"""Single changes of a job: of how states are stored, of the allocator, of precision, of the hardware; with their flags.

Nothing here says whether a change helps: planner/remedies.py prices them.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from cost_models.specs import catalog
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import SpecError
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.units import format_bytes
from cost_models.specs.workload import default_workload
from planner.given_profile import of_device
from planner.request import PlanRequest, precisions_of

__all__ = ["Change", "Kind", "hardware_changes", "software_changes", "workload_changes"]

Kind = Literal[
    "micro-batch",
    "recompute",
    "ZeRO",
    "TP",
    "PP",
    "CP",
    "EP",
    "offload",
    "allocator",
    "optimizer",
    "loss",
    "precision",
    "batch",
    "sequence",
    "host memory",
    "nodes",
    "GPU",
]
"""What a change is a change of; nodes, GPU and host memory have to be bought or rented."""

# With expandable segments the allocator holds little beyond what is live: 70.6 GiB allocated, 71.0 GiB reserved in a
# run of 26B with experts (NVIDIA-NeMo/Megatron-Bridge, pull 5321); 1 % is to the safe side of that.
EXPANDABLE_FRACTION = 0.01
EXPANDABLE_ENV = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
# Bytes of both moments of a parameter, and what keeps them so.
MOMENTS = ((4, "moments in bf16"), (2, "moments in 8 bits"))
# GPUs of more memory that are tried, the smallest ones first.
OTHER_GPUS = 4
# So much more memory than there is, over it, makes a larger card.
LARGER = 1.05


@dataclass(frozen=True)
class Change:
    """One change of a job: `flags` are those of the command that make it, in place of any of the same name.

    `text` says it in words, `env` names an environment variable that it rests on.
    """

    kind: Kind
    text: str
    flags: Mapping[str, str]
    request: PlanRequest
    env: str = field(default="")

    @property
    def needs_hardware(self) -> bool:
        """Whether somebody has to buy or rent something for it."""
        return self.kind in ("nodes", "GPU", "host memory")


def software_changes(request: PlanRequest) -> Iterator[Change]:
    """Changes of the allocator, the optimizer's bytes and the loss, which cost no hardware."""
    recipe = request.recipe
    if recipe.fragmentation_fraction > EXPANDABLE_FRACTION:
        yield _of_recipe(
            request,
            "allocator",
            "expandable segments",
            fragmentation_fraction=EXPANDABLE_FRACTION,
            env=EXPANDABLE_ENV,
        )
    for size, text in MOMENTS:
        if recipe.moment_bytes > size:
            yield _of_recipe(request, "optimizer", text, moment_bytes=size)
    if recipe.loss_bytes_per_logit > 0:
        yield _of_recipe(request, "loss", "loss in chunks, logits are never held whole", loss_bytes_per_logit=0)


def workload_changes(request: PlanRequest, *, smaller: bool) -> Iterator[Change]:
    """Changes of what a step computes: fp8; with `smaller` half the sequence, else twice the batch and half of it."""
    workload = request.workload
    if workload.precision == "bf16" and "fp8" in precisions_of(request.cluster.gpu, request.profile):
        changed = request.replaced(workload=workload.replaced(precision="fp8"))
        yield Change("precision", "matrix products in fp8", {"--set": "workload.precision=fp8"}, changed)
    if smaller:
        if workload.seq_len % 2 == 0:
            length = workload.seq_len // 2
            changed = request.replaced(workload=workload.replaced(seq_len=length))
            flags = {"--seq-len": str(length), "--global-batch": str(workload.global_batch)}
            yield Change("sequence", f"sequences of {length:,} tokens", flags, changed)
        return
    for batch in (2 * workload.global_batch, workload.global_batch // 2):
        if batch:
            changed = request.replaced(workload=workload.replaced(global_batch=batch))
            yield Change("batch", f"steps of {batch:,} sequences", {"--global-batch": str(batch)}, changed)


def hardware_changes(request: PlanRequest, *, host: bool) -> Iterator[Change]:
    """One more node, twice as many, GPUs of more memory; with `host` twice the host memory."""
    cluster = request.cluster
    if host:
        size = 2 * cluster.host_memory_bytes
        changed = request.replaced(cluster=cluster.replaced(host_memory_bytes=size))
        flags = {"--set": f"cluster.host_memory_bytes={size}"}
        yield Change("host memory", f"hosts of {format_bytes(size)}", flags, changed)
    yield from more_nodes(request, 1)
    if cluster.nodes > 1:
        yield from more_nodes(request, cluster.nodes)
    yield from _other_gpus(request)


def more_nodes(request: PlanRequest, nodes: int) -> Iterator[Change]:
    """The job on so many nodes more; nothing where the network ends before."""
    cluster = request.cluster
    gpus = (cluster.nodes + nodes) * cluster.gpus_per_node
    try:
        changed = request.replaced(cluster=cluster.with_gpus(gpus))
    except SpecError:
        return
    text = f"{nodes:,} more node{'s' * (nodes != 1)}: {gpus:,} GPUs"
    yield Change("nodes", text, {"--gpus": str(gpus), **_same_batch(request, gpus)}, changed)


def _other_gpus(request: PlanRequest) -> Iterator[Change]:
    """As many GPUs of more memory in nodes of the same size; nothing where cluster or profile were changed by hand."""
    cluster = request.cluster
    if not of_device(request.profile, cluster.gpu.name) or not _is_preset(cluster):
        return
    found = 0
    for card in _larger_cards(cluster.gpu, request.capacity_bytes, request.workload.precision):
        other = _sold_with(card.name, cluster.gpus)
        if other is None or other.gpus_per_node != cluster.gpus_per_node or found == OTHER_GPUS:
            continue
        found += 1
        label = f"{card.nominal_memory_bytes / 1e9:g}GB"
        changed = request.replaced(
            cluster=other,
            profile=catalog.load_profile(card.name),
            capacity_bytes=catalog.capacity_bytes(card, label).bytes,
        )
        text = f"{card.name}, {format_bytes(card.usable_memory_bytes)} usable"
        yield Change("GPU", text, {"--gpu": card.name, "--mem": label}, changed)


def _larger_cards(usual: GpuSpec, capacity_bytes: float, precision: str) -> list[GpuSpec]:
    """Cards of more memory and a precision, with links of the same kind: of each size the fastest, smallest first."""
    fastest: dict[int, GpuSpec] = {}
    for card in map(catalog.load_gpu, catalog.names("gpus")):
        rival = fastest.get(card.nominal_memory_bytes)
        faster = rival is None or card.peak_flops["bf16"] > rival.peak_flops["bf16"]
        larger = card.usable_memory_bytes > LARGER * capacity_bytes
        if larger and faster and _alike(card, usual) and _has(card, precision):
            fastest[card.nominal_memory_bytes] = card
    return [fastest[size] for size in sorted(fastest)]


def _alike(card: GpuSpec, usual: GpuSpec) -> bool:
    links, usual_links = card.nvlink_bandwidth_bytes_per_s > 0, usual.nvlink_bandwidth_bytes_per_s > 0
    return _is_amd(card) == _is_amd(usual) and links == usual_links


def _has(card: GpuSpec, precision: str) -> bool:
    return precision in precisions_of(card, catalog.load_profile(card.name))


def _is_amd(card: GpuSpec) -> bool:
    return card.name.startswith("mi")  # another vendor's is another software stack


def _sold_with(gpu: str, gpus: int) -> ClusterSpec | None:
    """The usual nodes of a GPU; None where the catalog knows none, or their network ends before so many."""
    try:
        return catalog.default_cluster(gpu, gpus)
    except SpecError:
        return None


def _is_preset(cluster: ClusterSpec) -> bool:
    try:
        return catalog.load_cluster(cluster.name, cluster.gpus) == cluster
    except SpecError:
        return False


def _same_batch(request: PlanRequest, gpus: int) -> dict[str, str]:
    """The flag that keeps the batch where its default would grow with the GPUs."""
    model, batch = request.model, request.workload.global_batch
    grows = default_workload(model, gpus) != default_workload(model, request.cluster.gpus)
    return {"--global-batch": str(batch)} if grows else {}


def _of_recipe(request: PlanRequest, kind: Kind, text: str, *, env: str = "", **changes: Any) -> Change:
    ((name, value),) = changes.items()
    changed = request.replaced(recipe=request.recipe.replaced(**changes))
    return Change(kind, text, {"--set": f"recipe.{name}={value}"}, changed, env)

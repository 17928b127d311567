"""Single changes of a configuration: of one degree, of what is recomputed, sharded or offloaded."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from planner.changes import Change, Kind, hardware_changes, more_nodes, software_changes, workload_changes
from planner.fitting import FULL
from planner.fixed import FixedStage
from planner.proposal import Proposal
from planner.request import PlanRequest
from planner.space import RECOMPUTE_SETS, ZERO_MODES, units

__all__ = ["Alteration", "alterations"]

# Quarters of the optimizer states and of the activations leave; all weights, or gradients, with the optimizer.
QUARTERS = (0.25, 0.5, 0.75, 1.0)
# So many times the nodes are tried at most.
MOST_NODES = 4
DEGREES: dict[str, Kind] = {"tp": "TP", "pp": "PP", "cp": "CP"}


@dataclass(frozen=True)
class Alteration:
    """One change of a configuration: `change` of its job, or of its own fields, which `change.flags` do not make."""

    change: Change
    proposal: Proposal


def alterations(proposal: Proposal) -> Iterator[Alteration]:
    """Every single change that is tried: of degrees, knobs, software and hardware; legal or not."""
    for kind, text, changed in (
        *_degrees(proposal),
        *_micro_batches(proposal),
        *_recompute(proposal),
        *_sharding(proposal),
        *_offload(proposal),
    ):
        if changed.alike:  # what differs from stage to stage could not be written down
            yield Alteration(Change(kind, text, {}, changed.request), changed)
    request = proposal.request
    jobs: tuple[Change, ...] = (
        *software_changes(request),
        *workload_changes(request, smaller=True),
        *hardware_changes(request, host=True),
    )
    for change in jobs:
        on_job = _on(proposal, change.request)
        if on_job is not None:
            yield Alteration(change, on_job)
    yield from _enough_nodes(proposal)


def _enough_nodes(proposal: Proposal) -> Iterator[Alteration]:
    """The fewest nodes more on which it fits; one and twice as many are tried anyway."""
    request = proposal.request
    for nodes in range(2, MOST_NODES * request.cluster.nodes):
        for change in more_nodes(request, nodes):
            changed = _on(proposal, change.request)
            if changed is not None and not changed.illegal and changed.figures.fits:
                yield Alteration(change, changed)
                return


Found = tuple[Kind, str, Proposal]


def _on(proposal: Proposal, request: PlanRequest) -> Proposal | None:
    """The configuration on a changed job: more GPUs make more data-parallel ranks; None where these are not whole."""
    layout = proposal.layout
    inner = layout["tp"] * layout["cp"] * layout["pp"]
    if request.cluster.gpus == proposal.request.cluster.gpus:
        return replace(proposal, request=request)
    dp, rest = divmod(request.cluster.gpus, inner)
    return None if rest else _with(replace(proposal, request=request), dp=dp)


def _with(proposal: Proposal, **degrees: int) -> Proposal:
    """The configuration with other degrees: the batch dealt out anew, states sharded over all of dp, layers evenly."""
    old, batch = proposal.layout, proposal.request.workload.global_batch
    layout = {**old, **degrees}
    layout["num_microbatches"] = max(batch // (layout["dp"] * layout["micro_batch_size"]), 1)
    if layout["dp"] != old["dp"]:
        layout |= {"dp_shard": layout["dp"], "dp_replicate": 1}
    if layout["pp"] == 1 or layout["vpp"] == 1:
        layout["schedule"] = 0 if old["vpp"] > 1 else old["schedule"]
        layout["vpp"] = 1
    if layout["tp"] != old["tp"]:
        layout["sequence_parallel"] = int(layout["tp"] > 1 and proposal.request.recipe.sequence_parallel)
    stages = proposal.stages
    if layout["pp"] != old["pp"] or layout["vpp"] != old["vpp"]:
        stages = _evenly(proposal, layout["pp"], layout["vpp"])
    held = sum(stage.layers for stage in stages)
    return replace(proposal, layout=layout, stages=stages, held_layers=held)


def _evenly(proposal: Proposal, pp: int, vpp: int) -> tuple[FixedStage, ...]:
    """Stages of as many layers each as they go, with the choices of the first one."""
    first = proposal.stages[0]
    share, rest = divmod(units(proposal.request.model), pp)
    everything = first.recompute_per_chunk * proposal.layout["vpp"] >= first.layers
    sizes = [share + (rank >= pp - rest) for rank in range(pp)]
    widest = -(-max(sizes) // vpp)
    per_chunk = widest if everything else min(first.recompute_per_chunk, widest)
    return tuple(replace(first, layers=size, recompute_per_chunk=per_chunk if first.recompute else 0) for size in sizes)


def _degrees(proposal: Proposal) -> Iterator[Found]:
    """TP, PP, CP doubled or halved, with the data-parallel ranks that leaves; EP alone."""
    layout = proposal.layout
    for name, kind in DEGREES.items():
        for value, dp in ((2 * layout[name], layout["dp"] / 2), (layout[name] / 2, 2 * layout["dp"])):
            if dp == int(dp) and value == int(value) and dp >= 1:
                changed = _with(proposal, **{name: int(value), "dp": int(dp)})
                yield kind, f"{name} {int(value)}, dp {int(dp)}", changed
    if proposal.request.model.moe is not None:
        experts = proposal.request.model.moe.experts
        for ep in (value for value in range(1, experts + 1) if experts % value == 0 and value != layout["ep"]):
            yield "EP", f"ep {ep}", _with(proposal, ep=ep)


def _micro_batches(proposal: Proposal) -> Iterator[Found]:
    size = proposal.layout["micro_batch_size"]
    for smaller in (value for value in range(size - 1, 0, -1) if size % value == 0):
        yield "micro-batch", f"micro-batches of {smaller}", _with(proposal, micro_batch_size=smaller)


def _recompute(proposal: Proposal) -> Iterator[Found]:
    """Every other recompute set, in full also on a quarter, a half and three quarters of the layers."""
    model, vpp = proposal.model, proposal.layout["vpp"]
    widest = -(-max(stage.layers for stage in proposal.stages) // vpp)
    for index in model.recompute_sets:
        counts = sorted({-(-widest * quarter // 4) for quarter in range(1, 5)}) if index == FULL else [widest]
        for count in counts if index else ():
            changed = _stages(proposal, recompute=index, recompute_per_chunk=count)
            if changed.stages != proposal.stages:
                names = "+".join(name for name in RECOMPUTE_SETS[index] if name in model.recompute_modules)
                part = f" of {count} layers a chunk" if count < widest else ""
                yield "recompute", f"recompute {names}{part}", changed


def _sharding(proposal: Proposal) -> Iterator[Found]:
    """Higher ZeRO stages, where there is something to shard over."""
    layout = proposal.layout
    if layout["dp_shard"] * layout["cp"] == 1:
        return
    for mode in range(proposal.stages[0].zero + 1, len(ZERO_MODES["zero_stage"])):
        changed = _stages(proposal, zero=mode)
        kept = ", weights stay gathered" if mode == 3 else ""
        yield "ZeRO", f"ZeRO {ZERO_MODES['zero_stage'][mode]}{kept}", changed


def _offload(proposal: Proposal) -> Iterator[Found]:
    """A quarter to all of optimizer states or activations on the host, or all states."""
    weights, gradients, optimizer, activations = proposal.stages[0].offload
    for share in QUARTERS:
        if share > optimizer:
            shares = (weights, gradients, share, activations)
            yield "offload", f"{share:.0%} of the optimizer on the host", _stages(proposal, offload=shares)
        if share > activations:
            shares = (weights, gradients, optimizer, share)
            yield "offload", f"{share:.0%} of the activations on the host", _stages(proposal, offload=shares)
    if (weights, gradients, optimizer) != (1.0, 1.0, 1.0):
        yield "offload", "all states on the host", _stages(proposal, offload=(1.0, 1.0, 1.0, activations))


def _stages(proposal: Proposal, **choices: Any) -> Proposal:
    """The configuration with a choice that all its stages make."""
    stages = tuple(replace(stage, **choices) for stage in proposal.stages)
    return replace(proposal, stages=stages)

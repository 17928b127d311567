"""How a plan shares the work out: each kind of group, what it splits, where its ranks are, and what that costs."""

from dataclasses import dataclass

import numpy as np

from cost_models.communication import outermost_tier
from planner.document import PlanDocument, recompute_summary
from planner.report.html.fields import Fields, Number
from planner.report.quantities import digits, duration, offload, words, zero
from planner.space import RANK_ORDERS, with_strides

__all__ = ["Sharing", "sharings"]

# By ZeRO level.
SHARDED = (
    "nothing",
    "optimizer states",
    "optimizer states and gradients",
    "weights, gradients and optimizer states",
)


@dataclass(frozen=True)
class Sharing:
    """One way in which work is shared: its name, how much of it, what that means, where, and its part of the step."""

    name: str
    degree: str
    does: str
    where: str = ""
    seconds: Number | None = None
    share: Number | None = None


def sharings(document: PlanDocument, fields: Fields) -> list[Sharing]:
    """The ways that a plan uses; those of one rank are left out."""
    layout, stages = document.parallelism, document.stages
    found = [
        *_tensor(document, fields),
        *_context(document, fields),
        *_expert(document, fields),
        *_pipeline(document, fields),
        *_data(document, fields),
    ]
    recomputed = recompute_summary(stages)
    if recomputed != "none":
        again = "What these modules put out is not kept for the backward pass, which computes it again."
        found.append(_priced(fields, "recompute", Sharing("Recompute", words(recomputed), again)))
    kept = dict.fromkeys(offload(stage.offload) for stage in stages)
    if set(kept) != {"none"}:
        moved = "Kept in the memory of the hosts, and copied to the GPUs when it is needed."
        found.append(Sharing("Offload", "; ".join(kept), moved))
    if layout.gpus_idle:
        idle = f"Of {document.cluster.gpus:,} GPUs; no plan of the search is faster by more than the gap."
        found.append(Sharing("Idle", f"{layout.gpus_idle:,} GPUs", idle))
    return found


def _tensor(document: PlanDocument, fields: Fields) -> list[Sharing]:
    layout = document.parallelism
    if layout.tp == 1:
        return []
    beside = ", norms and residuals along the sequence" if layout.sequence_parallel else ""
    does = f"The matrices of every layer are split over {layout.tp} GPUs{beside}; they exchange in every layer."
    name = "Tensor parallel" + " + sequence" * layout.sequence_parallel
    return [_priced(fields, "tensor_parallel", Sharing(name, f"{layout.tp}", does, _where(document, layout.tp, 1)))]


def _context(document: PlanDocument, fields: Fields) -> list[Sharing]:
    layout, tokens = document.parallelism, document.workload.seq_len
    if layout.cp == 1:
        return []
    share = f"{digits(tokens / layout.cp).removesuffix('.0')}" if tokens % layout.cp else f"{tokens // layout.cp:,}"
    does = f"Each sequence of {tokens:,} tokens is cut into {layout.cp} parts of {share}; attention sees all of them."
    where = _where(document, layout.cp, layout.tp)
    degree = f"{layout.cp}, {words(layout.cp_type)}"
    return [_priced(fields, "context_parallel", Sharing("Context parallel", degree, does, where))]


def _expert(document: PlanDocument, fields: Fields) -> list[Sharing]:
    layout, moe = document.parallelism, document.model.moe
    if layout.ep == 1 or moe is None:
        return []
    each = -(-moe.experts // layout.ep)
    does = f"Of {moe.experts:,} routed experts of a layer a rank holds {each:,}; a token goes to {moe.top_k:,}."
    degree = f"{layout.ep:,}" + f", each over {layout.etp} GPUs" * (layout.etp > 1)
    where = _where(document, layout.ep, layout.etp)
    return [_priced(fields, "expert_parallel", Sharing("Expert parallel", degree, does, where))]


def _pipeline(document: PlanDocument, fields: Fields) -> list[Sharing]:
    layout = document.parallelism
    if layout.pp == 1:
        return []
    chunks = layout.pp * layout.vpp
    cut = f"{layout.pp} stages" if layout.vpp == 1 else f"{chunks} chunks, {layout.vpp} on each of {layout.pp} stages"
    does = (
        f"{document.model.layers:,} layers are cut into {cut}; {layout.num_microbatches:,} micro-batches follow each "
        f"other ({layout.schedule}). What it costs is waiting."
    )
    degree = f"{layout.pp}" + f", {layout.vpp} chunks each" * (layout.vpp > 1)
    where = _where(document, layout.pp, int(_strides(document)["pp_stride"][0]))
    return [_priced(fields, "pipeline_bubble", Sharing("Pipeline", degree, does, where))]


def _data(document: PlanDocument, fields: Fields) -> list[Sharing]:
    layout = document.parallelism
    ranks = layout.dp_shard * layout.cp
    if layout.dp * layout.cp == 1:
        return []
    levels = sorted({stage.zero_stage for stage in document.stages})
    kept = f"of {SHARDED[levels[-1]]} each holds its share" if levels[-1] else "gradients are added up once a step"
    some = " (some stages share less)" * (len(levels) > 1)
    does = f"Each copy works on its own sequences; {kept}{some}."
    copies = f", {layout.dp_replicate} copies of {layout.dp_shard}" * (layout.dp_replicate > 1)
    where = _where(document, ranks, int(_strides(document)["dp_stride"][0]))
    sharing = Sharing("Data parallel", f"{layout.dp:,}{copies}, ZeRO {zero(document.stages)}", does, where)
    return [_priced(fields, "state_exchange", sharing)]


def _priced(fields: Fields, cause: str, sharing: Sharing) -> Sharing:
    """With its seconds and share of the step, where the document's breakdown has the cause."""
    if cause not in fields.value("predicted.time_breakdown_s"):
        return sharing
    field = f"predicted.time_breakdown_s.{cause}"
    seconds, share = fields(field, duration), fields.share(field, "predicted.step_time_s")
    return Sharing(sharing.name, sharing.degree, sharing.does, sharing.where, seconds, share)


def _where(document: PlanDocument, ranks: int, stride: int) -> str:
    """The outermost network tier that a group crosses, as the cluster names it."""
    return outermost_tier(document.cluster, ranks, stride)


def _strides(document: PlanDocument) -> dict[str, np.ndarray]:
    """Of each group the distance between neighbours, as the search has it."""
    layout = document.parallelism
    names = ("tp", "cp", "dp", "pp", "ep", "etp", "dp_shard")
    columns = {name: np.array([getattr(layout, name)]) for name in names}
    return with_strides({**columns, "rank_order": np.array([RANK_ORDERS.index(layout.rank_order)])})

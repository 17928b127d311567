"""The answer of a search as a plan document."""

from importlib.metadata import version
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cost_models.flops import model_flops
from cost_models.schedules import placement
from cost_models.specs import catalog
from cost_models.vocabulary import COMMUNICATIONS
from planner import hosts
from planner.bands import TIE_BAND, time_band
from planner.document import (
    MEMORY_CAUSES,
    SCHEMA_VERSION,
    Alternative,
    Certificate,
    Chunk,
    MemoryByCause,
    Offload,
    Parallelism,
    PeakMemory,
    PlanDocument,
    Prediction,
    Recompute,
    Stage,
    StagePrediction,
    recompute_summary,
    verdict_of,
    zero_summary,
)
from planner.fitting import MARGIN, Rows
from planner.given_profile import digests
from planner.incumbent import Candidate, Search
from planner.launchers import answers
from planner.measured import measured_share
from planner.not_searched import not_searched
from planner.predict import CostModel
from planner.space import (
    CONTEXT_TYPES,
    RANK_ORDERS,
    RECOMPUTE_SETS,
    ZERO_MODES,
    chunk_layers,
    context_type,
    group_size,
)

__all__ = ["document", "time_breakdown"]

METHOD = "best-first bounds, dynamic program, cutting planes (PuLP, HiGHS), replayed schedules"
# Below this, a rank's seconds are rounding.
NEGLIGIBLE = 1e-12


def document(search: Search) -> PlanDocument:
    """The plan document of the search's best candidate. There must be one."""
    best = search.best
    assert best is not None
    request = search.request
    chosen = best.pipeline.chosen(best.choice)
    stages = _stages(best, chosen)
    plan = PlanDocument(
        schema_version=SCHEMA_VERSION,
        tool_version=version("meshplan"),
        digests=digests(request.profile, catalog.digest(*_catalog_specs(search))),
        model=request.model,
        cluster=request.cluster,
        workload=request.workload,
        recipe=request.recipe,
        parallelism=_parallelism(search, best),
        stages=stages,
        predicted=_prediction(search, best, chosen, stages),
        certificate=_certificate(search, best),
        assumptions=(*request.assumptions, *_assumptions(search)),
        alternatives=_alternatives(search, best),
        recipes=search.recipes,
        heterogeneous=search.heterogeneous,
    )
    return plan.replaced(launchers=answers(plan))


def _catalog_specs(search: Search) -> tuple[Any, ...]:
    request = search.request
    return request.model, request.cluster, request.recipe


def _parallelism(search: Search, candidate: Candidate) -> Parallelism:
    layout = candidate.pipeline.layout
    degrees = ("tp", "pp", "vpp", "cp", "cp_heads", "ep", "etp", "dp", "dp_shard", "dp_replicate")
    batch = ("micro_batch_size", "num_microbatches")
    return Parallelism(
        **{name: layout[name] for name in (*degrees, *batch)},
        cp_type=CONTEXT_TYPES[int(context_type(layout))],
        sequence_parallel=bool(layout["sequence_parallel"]),
        rank_order=RANK_ORDERS[layout["rank_order"]],
        schedule=candidate.pipeline.schedule,
        group_size=int(group_size(layout)),
        slices=layout["slices"],
        gpus_used=layout["world"],
        gpus_idle=search.request.cluster.gpus - layout["world"],
    )


def _stages(candidate: Candidate, chosen: Rows) -> tuple[Stage, ...]:
    layout, model = candidate.pipeline.layout, candidate.pipeline.model
    pp, vpp = layout["pp"], layout["vpp"]
    place, ends_model = placement(candidate.pipeline.schedule, pp, vpp), chosen["has_head"][:, None] > 0
    pattern = model.request.model.layer_pattern
    sizes = chunk_layers(chosen["layers"][:, None], vpp, np.arange(vpp), ends_model) * len(pattern.period)
    by_stage = sizes[place.rank, place.chunk]
    by_stage[0] += len(pattern.leading)
    by_stage[-1] += len(pattern.trailing)
    first_layer = np.empty_like(sizes)
    sizes[place.rank, place.chunk], first_layer[place.rank, place.chunk] = by_stage, np.cumsum(by_stage) - by_stage
    return tuple(_stage(model, chosen, rank, first_layer[rank], sizes[rank]) for rank in range(pp))


def _stage(
    model: CostModel, chosen: Rows, rank: int, first_layer: NDArray[np.int64], sizes: NDArray[np.int64]
) -> Stage:
    zero = int(chosen["zero"][rank])
    seconds = ("forward_s", "input_grad_s", "weight_grad_s", "first_s", "last_s")
    totals = ("allocated_bytes", "reserved_bytes", "device_bytes", "host_bytes")
    offloads = ("weights", "gradients", "optimizer", "activations")
    return Stage(
        chunks=tuple(
            Chunk(first_layer=int(first), layers=int(layers)) for first, layers in zip(first_layer, sizes, strict=True)
        ),
        layers=int(sizes.sum()),
        # Where pipeline ranks share out the ends, the first and the last lead.
        has_embedding=rank == 0,
        has_head=bool(chosen["head_rank"][rank]),
        zero_stage=int(ZERO_MODES["zero_stage"][zero]),
        reshard_after_forward=bool(ZERO_MODES["reshard"][zero]),
        recompute=_recompute(model, chosen, rank),
        offload=Offload(**{name: float(chosen[f"offload_{name}"][rank]) for name in offloads} if model.offload else {}),
        predicted=StagePrediction(
            **{name: float(chosen[name][rank]) for name in (*seconds, *totals)},
            memory_bytes=_memory(chosen, rank),
        ),
    )


def _recompute(model: CostModel, chosen: Rows, rank: int) -> Recompute:
    """The set and the layers that recompute it, those that go with the embedding or the head included."""
    pattern = model.request.model.layer_pattern
    count = int(chosen["recompute_layers"][rank]) * len(pattern.period)
    if chosen["recompute_ends"][rank]:
        count += len(pattern.leading) * int(chosen["has_embedding"][rank])
        count += len(pattern.trailing) * int(chosen["has_head"][rank])
    wanted = RECOMPUTE_SETS[int(chosen["recompute"][rank])]
    modules = tuple(module for module in wanted if module in model.recompute_modules) if count else ()
    return Recompute(set=modules, layers=count if modules else 0)


def _memory(chosen: Rows, rank: int) -> MemoryByCause:
    return MemoryByCause(**{cause: float(chosen[cause][rank]) for cause in MEMORY_CAUSES})


def _prediction(search: Search, best: Candidate, chosen: Rows, stages: tuple[Stage, ...]) -> Prediction:
    request, step_s = search.request, best.objective_s
    gpus = best.pipeline.layout["world"]
    peak = request.cluster.gpu.peak_flops[request.workload.precision] * gpus * step_s
    memory, band = _peak_memory(search, chosen), time_band(request.model)
    return Prediction(
        step_time_s=step_s,
        step_time_low_s=step_s / (1.0 + band),
        step_time_high_s=step_s * (1.0 + band),
        tokens_per_s_per_gpu=request.workload.tokens / step_s / gpus,
        mfu=model_flops(request.model, request.workload) / peak,
        mfu_full_attention=model_flops(request.model, request.workload, causal=False) / peak,
        time_breakdown_s=time_breakdown(best, chosen),
        host_memory_bytes=hosts.fullest_node_bytes(request, best.pipeline.layout, chosen["host_bytes"]),
        peak_memory_bytes=memory,
        verdict=verdict_of(memory.low, memory.high, memory.capacity),
        measured_share=measured_share(best, chosen),
    )


def _peak_memory(search: Search, chosen: Rows) -> PeakMemory:
    fullest = int(np.argmax(chosen["device_bytes"]))
    device = float(chosen["device_bytes"][fullest])
    return PeakMemory(
        allocated=float(chosen["allocated_bytes"][fullest]),
        reserved=float(chosen["reserved_bytes"][fullest]),
        device=device,
        capacity=search.request.capacity_bytes,
        low=device * (1.0 - MARGIN),
        high=device * (1.0 + MARGIN),
        breakdown=_memory(chosen, fullest),
    )


def time_breakdown(best: Candidate, chosen: Rows) -> dict[str, float]:
    """Step seconds by cause on the rank with the most work; what it waits for is the bubble, hops included."""
    m = best.pipeline.layout["num_microbatches"]
    shared = ("pipeline_exchange",) if "pipeline_exchange_s" in chosen else ()
    names = ("compute", *COMMUNICATIONS, *shared, "recompute", "exchange")
    parts = {name: m * chosen[f"{name}_s"] for name in names}
    parts["exchange"] = parts["exchange"] + chosen["first_s"] + chosen["last_s"]
    busy = np.sum(list(parts.values()), axis=0)
    rank = int(np.argmax(busy))
    global_s = float(chosen["global_s"].max())
    breakdown = {
        "compute": float(parts["compute"][rank]),
        **{name: float(parts[name][rank]) for name in (*COMMUNICATIONS, *shared)},
        "recompute": float(parts["recompute"][rank]),
        "state_exchange": float(parts["exchange"][rank]),
        "pipeline_bubble": best.objective_s - global_s - float(busy[rank]),
        "optimizer_step": global_s,
    }
    return {cause: seconds for cause, seconds in breakdown.items() if seconds > NEGLIGIBLE * best.objective_s}


def _certificate(search: Search, best: Candidate) -> Certificate:
    proven = search.certificate
    return Certificate(
        status="OPTIMAL" if search.proven else "FEASIBLE",
        objective_s=best.objective_s,
        bound_s=proven.bound,
        gap=proven.gap,
        method=METHOD,
        layouts=search.layouts,
        rows=search.rows,
    )


def _alternatives(search: Search, best: Candidate) -> tuple[Alternative, ...]:
    """The best plan of every other mesh that was replayed, fastest first."""
    return tuple(_alternative(search, candidate, best) for candidate in search.alternatives[: search.told_beside])


def _alternative(search: Search, candidate: Candidate, best: Candidate) -> Alternative:
    chosen = candidate.pipeline.chosen(candidate.choice)
    stages = _stages(candidate, chosen)
    slower_by = candidate.objective_s / best.objective_s - 1.0
    return Alternative(
        parallelism=_parallelism(search, candidate),
        step_time_s=candidate.objective_s,
        slower_by=slower_by,
        device_bytes=float(chosen["device_bytes"].max()),
        zero_stage=zero_summary(stages),
        recompute=recompute_summary(stages),
        tie=slower_by <= TIE_BAND,
    )


def _of_offload(search: Search) -> tuple[str, ...]:
    """Why the host's memory is used, where it may be."""
    if not search.model.offload:
        return ()
    if "offload" in search.request.search:
        return ("Offload to the host is searched beside plans that fit without.",)
    return ("Nothing fits in the GPUs' memory alone: the host's is used too.",)


def _of_meshes(search: Search) -> tuple[str, ...]:
    """What is known of pipelines whose stages differ in size, where they were asked for."""
    if "meshes" not in search.request.search:
        return ()
    if search.heterogeneous is not None:
        return (
            "A pipeline of stages of different sizes is faster: see heterogeneous. The plan is of one mesh for all.",
        )
    return ("No pipeline of stages of different sizes was found that beats the plan by the gap.",)


def _inexpressible(search: Search) -> str:
    """How many meshes, and layouts on the others, there would be without the target's rules, where there are any."""
    kinds = {"target meshes": "meshes", "target": "more layouts"}
    counts = [f"{search.dropped[reason]:,} {what}" for reason, what in kinds.items() if search.dropped.get(reason)]
    return f"; {search.request.target} cannot express {' and '.join(counts)}" if counts else ""


def _assumptions(search: Search) -> tuple[str, ...]:
    profile = search.request.profile
    rest = "the measured tables and the constants" if profile.tables else "the constants"
    over = search.dropped.get("memory", 0)
    # Where stages must choose alike, a layout is dropped once for each choice of them.
    above = min(search.dropped.get("bound", 0), search.layouts - over)
    # The bands are those of runs on GPUs of the catalog.
    such = "predictions with the catalog's profiles" if profile.provenance else "such predictions"
    return (
        f"Seconds rest on {rest} of the {profile.name} profile, rooflines beyond what was measured: "
        f"four of five measured steps lie within {time_band(search.request.model):.0%} of {such}.",
        *_of_offload(search),
        f"A plan fits when its predicted memory leaves {MARGIN:.0%} of it to spare.",
        f"Of {search.layouts:,} layouts on promising meshes, {above:,} cannot beat the plan by the gap and {over:,} do "
        f"not fit{_inexpressible(search)}.",
        *_of_meshes(search),
        *search.told,
        f"Not searched: {'; '.join(not_searched(search.request))}.",
    )

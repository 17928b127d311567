"""One configuration costed as it stands: no search, no memory limit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from cost_models.schedules import SLICED
from cost_models.specs.model import ModelSpec
from cost_models.specs.profile import HardwareProfile
from planner.document import Parallelism, PlanDocument, Stage
from planner.errors import RequestError
from planner.fitting import FULL, Rows, with_recompute
from planner.given_profile import profile_of
from planner.incumbent import Candidate
from planner.layout_costs import LayoutCosts
from planner.options import stage_rows
from planner.pipeline import Pipeline
from planner.predict import CostModel
from planner.request import SEARCHED, PlanRequest
from planner.rules import FLEXIBLE
from planner.space import (
    LAYOUT_FIELDS,
    OFFLOADS,
    RANK_ORDERS,
    RECOMPUTE_SETS,
    SCHEDULES,
    ZERO_MODES,
    chunk_layers,
    take,
    with_strides,
)

__all__ = [
    "FixedStage",
    "fixed_candidate",
    "fixed_stages",
    "layout_of",
    "model_of",
    "planned",
    "request_of",
    "stages_of",
    "zero_mode",
]


@dataclass(frozen=True)
class FixedStage:
    """What one pipeline rank holds and keeps. `layers` counts repeating groups of layers, leading and trailing apart.

    `zero` is an index of ZERO_MODES, `recompute` one of RECOMPUTE_SETS, which covers up to `recompute_per_chunk`
    groups of every chunk; `offload` are the fractions of OFFLOADS.
    """

    layers: int
    zero: int = 0
    recompute: int = 0
    recompute_per_chunk: int = 0
    offload: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)


def fixed_candidate(model: CostModel, layout: Mapping[str, int], stages: Sequence[FixedStage]) -> Candidate:
    """The layout with these stages and its step time of record; it may break rules and need more memory than there is.

    `layout` names LAYOUT_FIELDS; groups of the usual size need no `group_size`. A `model` that was built without
    offload reads no offload fractions.
    """
    layout = {"group_size": 0, **layout}
    columns = with_strides({name: np.array([layout[name]]) for name in LAYOUT_FIELDS})
    costs = LayoutCosts.of(model, columns)
    options = stage_rows(columns, _positions(stages), model.request.recipe)
    options = with_recompute(options, _column(stages, "recompute"), _column(stages, "recompute_per_chunk"))
    options["zero"] = _column(stages, "zero")
    if model.offload:
        shares = np.array([stage.offload for stage in stages])
        options |= dict(zip(OFFLOADS, shares.T, strict=True))
    options |= model.stages(costs, options, "device") | model.stages(costs, options, "times")
    pipeline = Pipeline(model, costs, 0, options)
    candidate = Candidate(pipeline, np.arange(len(stages)), 0.0)
    return replace(candidate, objective_s=pipeline.step_s(candidate.choice))


def stages_of(candidate: Candidate) -> list[FixedStage]:
    """The stages of a candidate, to be costed elsewhere."""
    rows = take(candidate.pipeline.options, candidate.choice)
    shares = np.column_stack([rows.get(name, np.zeros(len(candidate.choice))) for name in OFFLOADS]).tolist()
    names = ("layers", "zero", "recompute", "recompute_per_chunk")
    columns = zip(*(rows[name].tolist() for name in names), shares, strict=True)
    return [FixedStage(layers, zero, sets, count, tuple(away)) for layers, zero, sets, count, away in columns]


def _positions(stages: Sequence[FixedStage]) -> Rows:
    position = np.arange(len(stages))
    return {"layout": 0 * position, "position": position, "layers": _column(stages, "layers")}


def _column(stages: Sequence[FixedStage], field: str) -> NDArray[np.int64]:
    return np.array([getattr(stage, field) for stage in stages], dtype=np.int64)


def planned(document: PlanDocument, profile: HardwareProfile | None = None) -> Candidate:
    """The plan of a document as the search had it, costed anew.

    Raises RequestError when its chunks are not split as `space.chunk_layers` does.
    """
    model = model_of(document, request_of(document, profile))
    return fixed_candidate(model, layout_of(document.parallelism), fixed_stages(model, document))


def model_of(document: PlanDocument, request: PlanRequest) -> CostModel:
    """The cost expressions of a request that know what a document's plan does: offload, slices."""
    offload = any(any(stage.offload.model_dump().values()) for stage in document.stages)
    return CostModel(request, offload=offload, sliced=document.parallelism.schedule in SLICED)


def fixed_stages(model: CostModel, document: PlanDocument) -> list[FixedStage]:
    """What every stage of a document holds and keeps. Raises RequestError as `planned` does."""
    return [_fixed_stage(model, document, rank) for rank in range(len(document.stages))]


def request_of(document: PlanDocument, profile: HardwareProfile | None = None) -> PlanRequest:
    """The request that a document answers, timed by `profile`, else by its own.

    Raises RequestError when its own is a measured one, SpecError when the catalog has no profile of the GPU.
    """
    return PlanRequest(
        model=document.model,
        cluster=document.cluster,
        workload=document.workload,
        profile=profile or profile_of(document),
        recipe=document.recipe,
        schedules=_schedules_of(document.parallelism),
        capacity_bytes=document.predicted.peak_memory_bytes.capacity,
        assumptions=document.assumptions,
    )


def _schedules_of(parallelism: Parallelism) -> tuple[str, ...]:
    """What was searched for a plan: the usual schedules, or the one that is none of them."""
    if _usual_groups(parallelism):
        return SEARCHED if parallelism.schedule in SEARCHED else (parallelism.schedule,)
    return (FLEXIBLE,)


def _usual_groups(parallelism: Parallelism) -> bool:
    return parallelism.group_size in (0, min(parallelism.pp, parallelism.num_microbatches))


def layout_of(parallelism: Parallelism) -> dict[str, int]:
    """The columns of LAYOUT_FIELDS of a document's parallelism."""
    values = parallelism.model_dump()
    return {
        **{name: int(values[name]) for name in LAYOUT_FIELDS if isinstance(values.get(name), int)},
        "cp_ring": int(parallelism.cp_type in ("ring", "hierarchical")),
        "rank_order": RANK_ORDERS.index(parallelism.rank_order),
        "schedule": SCHEDULES.index(parallelism.schedule),
        "group_size": 0 if _usual_groups(parallelism) else parallelism.group_size,
    }


def zero_mode(zero_stage: int, reshard: bool) -> int:
    """The index of ZERO_MODES with this ZeRO stage; resharding after the forward is known at stage 3 only."""
    same = (ZERO_MODES["zero_stage"] == zero_stage) & (ZERO_MODES["reshard"] == (reshard and zero_stage == 3))
    return int(np.flatnonzero(same)[0])


def _fixed_stage(model: CostModel, document: PlanDocument, rank: int) -> FixedStage:
    stage = document.stages[rank]
    groups = [_groups(document.model, stage, index) for index in range(len(stage.chunks))]
    _check_split(groups, rank, stage.has_head)
    recompute, per_chunk = _recompute(model, stage, groups)
    shares = stage.offload
    return FixedStage(
        layers=sum(groups),
        zero=zero_mode(stage.zero_stage, stage.reshard_after_forward),
        recompute=recompute,
        recompute_per_chunk=per_chunk,
        offload=(shares.weights, shares.gradients, shares.optimizer, shares.activations),
    )


def _groups(model: ModelSpec, stage: Stage, chunk: int) -> int:
    """Repeating groups of layers in a chunk, without the leading layers of the model or its trailing ones."""
    pattern = model.layer_pattern
    layers = stage.chunks[chunk].layers
    layers -= len(pattern.leading) * (stage.has_embedding and chunk == 0)
    layers -= len(pattern.trailing) * (stage.has_head and chunk == len(stage.chunks) - 1)
    groups, rest = divmod(layers, len(pattern.period))
    if rest or groups < 0:
        message = f"chunk {chunk} must hold whole groups of {len(pattern.period)} layers, got {layers} layers"
        raise RequestError(message)
    return groups


def _check_split(groups: list[int], rank: int, has_head: bool) -> None:
    expected = chunk_layers(sum(groups), len(groups), np.arange(len(groups)), has_head)
    if groups != expected.tolist():
        message = (
            f"stages[{rank}].chunks must hold {expected.tolist()} groups of layers, as even as can be, got {groups}"
        )
        raise RequestError(message)


def _recompute(model: CostModel, stage: Stage, groups: list[int]) -> tuple[int, int]:
    """The recompute set, by index, and the groups of a chunk that it covers."""
    wanted = frozenset(stage.recompute.set)
    if not wanted:
        return 0, 0
    if wanted == {"full"}:
        pattern = model.request.model.layer_pattern
        layers = stage.recompute.layers - len(pattern.leading) * stage.has_embedding
        layers -= len(pattern.trailing) * stage.has_head
        covered = [sum(min(count, most) for count in groups) for most in range(max(groups) + 1)]
        nearest = min(range(len(covered)), key=lambda most: abs(covered[most] * len(pattern.period) - layers))
        return FULL, nearest
    for index in model.recompute_sets:
        if model.recompute_modules.intersection(RECOMPUTE_SETS[index]) == wanted:
            return index, max(groups)
    allowed = "; ".join(", ".join(RECOMPUTE_SETS[index]) for index in model.recompute_sets if index)
    message = f"recompute.set must be one of: {allowed}; got {', '.join(sorted(wanted))}"
    raise RequestError(message)

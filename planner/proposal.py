"""A configuration that somebody proposes: every degree and knob of it, whether or not it is legal or fits.

What a plan has decided is `planner.document.Configuration`: that is always whole and legal.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field

from cost_models.schedules import SLICED
from cost_models.specs.base import Flag, NonNegativeFloat, NonNegativeInt, PositiveInt, Spec
from planner import compose, hosts, launchers, rules
from planner.document import PlanDocument, Verdict, verdict_of
from planner.errors import RequestError
from planner.evaluate.errors import RunError
from planner.evaluate.split import read_sizes
from planner.fitting import MARGIN
from planner.fixed import FixedStage, fixed_candidate, fixed_stages, layout_of, model_of, zero_mode
from planner.forbidden import BrokenRule, violations
from planner.incumbent import Candidate, Search
from planner.predict import CostModel
from planner.request import PlanRequest
from planner.restriction import pairs
from planner.rules import FLEXIBLE
from planner.space import (
    CONTEXT_TYPES,
    OFFLOADS,
    RANK_ORDERS,
    RECOMPUTE_SETS,
    SCHEDULES,
    ZERO_MODES,
    known_values,
    sequence_parallel,
    units,
)

__all__ = ["Figures", "Proposal", "of_document", "of_text"]

Degree = PositiveInt | None
Share = Annotated[NonNegativeFloat, Field(le=1)]
METHOD = "one configuration, costed as it stands"


class Setting(Spec):
    """The fields of a configuration as they are written; None where the others decide."""

    label: ClassVar[str] = "check"

    tp: PositiveInt = 1
    sequence_parallel: Flag | None = None
    pp: PositiveInt = 1
    vpp: PositiveInt = 1
    cp: PositiveInt = 1
    cp_type: Literal["all_gather", "ring", "ulysses", "hierarchical"] | None = None
    cp_heads: Degree = None
    ep: PositiveInt = 1
    etp: PositiveInt = 1
    dp: Degree = None
    dp_shard: Degree = None
    dp_replicate: Degree = None
    rank_order: Literal["tp-cp-ep-dp-pp", "tp-cp-ep-pp-dp"] = "tp-cp-ep-dp-pp"
    micro_batch_size: PositiveInt = 1
    num_microbatches: Degree = None
    schedule: Literal[SCHEDULES] | None = None  # type: ignore[valid-type]
    group_size: NonNegativeInt = 0
    slices: Degree = None
    zero_stage: Annotated[NonNegativeInt, Field(le=3)] | None = None
    reshard_after_forward: Flag = True
    recompute: str = "none"
    recompute_layers_per_chunk: Degree = None
    stage_layers: str | PositiveInt | None = None
    offload_weights: Share = 0.0
    offload_gradients: Share = 0.0
    offload_optimizer: Share = 0.0
    offload_activations: Share = 0.0


@dataclass(frozen=True)
class Figures:
    """What a configuration takes: seconds of a step, bytes of the fullest GPU, host memory of the fullest node."""

    step_time_s: float
    device_bytes: float
    host_bytes: float
    verdict: Verdict
    host_fits: bool

    @property
    def fits(self) -> bool:
        """Whether it fits on the device, its band included, and in the host's memory."""
        return self.verdict == "yes" and self.host_fits


@dataclass(frozen=True)
class Proposal:
    """A layout and what every stage holds and keeps, for a job. `layout` has the columns of LAYOUT_FIELDS.

    `notes` tell what was assumed. `held_layers` are the repeating groups of layers that the stages hold together.
    """

    request: PlanRequest
    layout: Mapping[str, int]
    stages: tuple[FixedStage, ...]
    held_layers: int
    notes: tuple[str, ...] = ()

    @property
    def schedule(self) -> str:
        """The name of its schedule."""
        return SCHEDULES[self.layout["schedule"]]

    @property
    def world(self) -> int:
        """GPUs that it uses."""
        return int(np.prod([self.layout[name] for name in ("tp", "cp", "pp", "dp")]))

    @property
    def alike(self) -> bool:
        """Whether all stages shard, recompute and offload alike."""
        whole = {replace(stage, layers=0) for stage in self.stages}
        return len(whole) == 1

    @property
    def text(self) -> str:
        """The pairs that `of_text` reads it from; defaults are left out. Its stages must be alike."""
        layout, stage = self.layout, self.stages[0]
        named = {"cp_type": CONTEXT_TYPES, "rank_order": RANK_ORDERS, "schedule": SCHEDULES}
        values: dict[str, Any] = {name: layout[name] for name in Setting.model_fields if name in layout}
        values |= {name: table[layout[name]] for name, table in named.items()}
        values["sequence_parallel"] = bool(layout["sequence_parallel"])
        values["zero_stage"] = int(ZERO_MODES["zero_stage"][stage.zero])
        values["reshard_after_forward"] = values["zero_stage"] < 3 or bool(ZERO_MODES["reshard"][stage.zero])
        values |= dict(zip(OFFLOADS, stage.offload, strict=True))
        if stage.recompute:
            modules = (name for name in RECOMPUTE_SETS[stage.recompute] if name in self.model.recompute_modules)
            values |= {"recompute": "+".join(modules), "recompute_layers_per_chunk": stage.recompute_per_chunk}
        pattern = self.request.model.layer_pattern
        sizes = [each.layers * len(pattern.period) for each in self.stages]
        sizes[0] += len(pattern.leading)
        sizes[-1] += len(pattern.trailing)
        values["stage_layers"] = "+".join(map(str, sizes)) if len(sizes) > 1 else None
        kept = {name: value for name, value in values.items() if value is not None}
        for name in tuple(kept):  # what the others say anyway is left out
            fewer = {other: value for other, value in kept.items() if other != name}
            if self._same(Setting.model_validate(fewer)):
                kept = fewer
        return ",".join(f"{name}={_written(value)}" for name, value in kept.items())

    def _same(self, setting: Setting) -> bool:
        try:
            read = _of_setting(setting, self.request)
        except RequestError:  # what is left contradicts itself
            return False
        return (read.layout, read.stages) == (self.layout, self.stages)

    @cached_property
    def model(self) -> CostModel:
        """The cost expressions that know what it does."""
        offloads = any(any(stage.offload) for stage in self.stages)
        return CostModel(self.request, offload=offloads, sliced=self.schedule in SLICED)

    @cached_property
    def candidate(self) -> Candidate:
        """The configuration costed. It must be legal."""
        return fixed_candidate(self.model, self.layout, self.stages)

    @cached_property
    def figures(self) -> Figures:
        """Its step and its memory. It must be legal."""
        request, pipeline = self.request, self.candidate.pipeline
        chosen = pipeline.chosen(self.candidate.choice)
        device, on_host = float(chosen["device_bytes"].max()), chosen["host_bytes"]
        return Figures(
            step_time_s=self.candidate.objective_s,
            device_bytes=device,
            host_bytes=hosts.fullest_node_bytes(request, pipeline.layout, on_host),
            verdict=verdict_of(device * (1.0 - MARGIN), device * (1.0 + MARGIN), request.capacity_bytes),
            host_fits=hosts.fit(request, pipeline.layout, on_host),
        )

    @cached_property
    def document(self) -> PlanDocument:
        """The configuration as a plan document, of a search that looked at nothing else. It must be legal."""
        search = Search(self.model)
        search.add(self.candidate, proven=False)
        search.reached(self.candidate.objective_s)
        search.seen(1)
        found = compose.document(search)
        certificate = found.certificate.replaced(method=METHOD)
        return found.replaced(certificate=certificate, assumptions=(*self.request.assumptions, *self.notes))

    @cached_property
    def illegal(self) -> tuple[BrokenRule, ...]:
        """The rules that hold for every plan and that it breaks."""
        values = {**known_values(self.request), **self.layout, "held_layers": self.held_layers}
        broken = violations(values, flexible=FLEXIBLE in self.request.schedules)
        return tuple(BrokenRule(*each) for each in broken)

    @cached_property
    def inexpressible(self) -> tuple[BrokenRule, ...]:
        """The rules of the target that it breaks; those of the layout alone where that is not legal."""
        target = self.request.target
        if self.illegal:
            return tuple(BrokenRule(*each) for each in rules.refusals(self._values, target))
        return tuple(BrokenRule(each.id, each.message) for each in launchers.refusals(self.document, target))

    @property
    def _values(self) -> dict[str, Any]:
        """What the rules of launchers read, of stages that choose alike."""
        stage, pattern = self.stages[0], self.request.model.layer_pattern
        modules = self.model.recompute_modules.intersection(RECOMPUTE_SETS[stage.recompute])
        layers = stage.layers * len(pattern.period)
        every = stage.recompute_per_chunk * self.layout["vpp"] >= stage.layers
        recomputed = layers if every else stage.recompute_per_chunk * self.layout["vpp"] * len(pattern.period)
        return {
            **known_values(self.request),
            **self.layout,
            "zero_stage": int(ZERO_MODES["zero_stage"][stage.zero]),
            "reshard": int(ZERO_MODES["reshard"][stage.zero]),
            "stage_layers": layers,
            "recompute_layers": recomputed if stage.recompute else 0,
            **{f"recompute_{name}": int(name in modules) for name in rules.RECOMPUTE_MODULES},
            **dict(zip(OFFLOADS, stage.offload, strict=True)),
            **dict.fromkeys(("distinct_zero", "distinct_recompute", "distinct_offload"), 1),
        }


def of_document(document: PlanDocument, request: PlanRequest) -> Proposal:
    """The configuration of a plan document. Raises RequestError for chunks that are split unevenly."""
    stages = fixed_stages(model_of(document, request), document)
    layout = {**layout_of(document.parallelism), "cp_type": CONTEXT_TYPES.index(document.parallelism.cp_type)}
    return Proposal(request, layout, tuple(stages), sum(stage.layers for stage in stages))


def of_text(text: str, request: PlanRequest) -> Proposal:
    """The configuration of a job that `tp=2,pp=4,micro_batch_size=1` stands for; `notes` tell what else was assumed.

    Raises RequestError or SpecError, which name the field, the value and what is allowed.
    """
    return _of_setting(Setting.model_validate(pairs(text, "check")), request)


def _of_setting(setting: Setting, request: PlanRequest) -> Proposal:
    layout, notes = _layout(setting, request)
    groups = _stage_groups(setting, request)
    recompute, frees = _recompute(setting, request)
    zero_stage = request.recipe.zero_stage if setting.zero_stage is None else setting.zero_stage
    if zero_stage < 3 and not setting.reshard_after_forward:
        message = f"check.reshard_after_forward can be false under zero_stage 3 alone, got zero_stage {zero_stage}"
        raise RequestError(message)
    if setting.recompute == "none" and setting.recompute_layers_per_chunk is not None:
        message = (
            "check.recompute_layers_per_chunk needs what is recomputed there (recompute=full), "
            f"got {setting.recompute_layers_per_chunk} with recompute none"
        )
        raise RequestError(message)
    widest = -(-max(groups) // setting.vpp)
    alike: dict[str, Any] = {
        "zero": zero_mode(zero_stage, setting.reshard_after_forward),
        "recompute": recompute,
        "recompute_per_chunk": min(setting.recompute_layers_per_chunk or widest, widest) if recompute else 0,
        "offload": tuple(getattr(setting, name) for name in OFFLOADS),
    }
    stages = tuple(FixedStage(layers=count, **alike) for count in groups)
    if setting.zero_stage is None:
        notes.append(f"zero_stage is not given: {zero_stage}, as the {request.recipe.name} recipe has it.")
    return Proposal(request, layout, stages, sum(groups), (*notes, *frees))


def _layout(setting: Setting, request: PlanRequest) -> tuple[dict[str, int], list[str]]:
    """The columns of the layout, with what the given values leave to the others, and a sentence for each of these."""
    inner, notes = setting.tp * setting.cp * setting.pp, []
    dp = setting.dp or max(request.cluster.gpus // inner, 1)
    if setting.dp is None:
        notes.append(f"dp is not given: {dp}, what tp*cp*pp = {inner} leaves of {request.cluster.gpus} GPUs.")
    count = setting.num_microbatches or max(request.workload.global_batch // (dp * setting.micro_batch_size), 1)
    shard = setting.dp_shard or dp // (setting.dp_replicate or 1) or 1
    schedule = setting.schedule or ("interleaved" if setting.vpp > 1 else "1f1b")
    cp_type, cp_heads = _context(setting)
    usual = setting.tp > 1 and sequence_parallel(request)
    layout = {name: getattr(setting, name) for name in ("tp", "pp", "vpp", "cp", "ep", "etp", "micro_batch_size")}
    layout |= {
        "sequence_parallel": int(usual if setting.sequence_parallel is None else setting.sequence_parallel),
        "cp_heads": cp_heads,
        "cp_ring": int(cp_type in ("ring", "hierarchical")),
        "cp_type": CONTEXT_TYPES.index(cp_type),
        "dp": dp,
        "dp_shard": shard,
        "dp_replicate": setting.dp_replicate or max(dp // shard, 1),
        "rank_order": RANK_ORDERS.index(setting.rank_order),
        "num_microbatches": count,
        "schedule": SCHEDULES.index(schedule),
        "slices": setting.slices or (max(setting.pp, 2) if schedule in SLICED else 1),
        "group_size": setting.group_size,
    }
    return layout, notes


def _context(setting: Setting) -> tuple[str, int]:
    """How the context is split, and how many neighbours trade sequence for heads: each as the other has it."""
    cp, heads = setting.cp, setting.cp_heads
    kind = setting.cp_type or ("all_gather" if heads in (None, 1) else "ulysses" if heads == cp else "hierarchical")
    usual = {"ulysses": cp, "hierarchical": 2}.get(kind, 1)
    heads = usual if heads is None else heads
    if kind == "hierarchical" and not 1 < heads < cp:
        message = f"check.cp_heads must be above 1 and below cp ({cp}) for cp_type hierarchical, got {heads}"
        raise RequestError(message)
    if kind != "hierarchical" and heads != usual:
        message = f"check.cp_heads must be {usual} for cp_type {kind} with cp {cp}, got {heads}"
        raise RequestError(message)
    return kind, heads


def _stage_groups(setting: Setting, request: PlanRequest) -> list[int]:
    """Repeating groups of layers of every stage: as written, else as even as they go, the last ranks hold the rest."""
    pp, pattern = setting.pp, request.model.layer_pattern
    if setting.stage_layers is None:
        share, rest = divmod(units(request.model), pp)
        return [share + (rank >= pp - rest) for rank in range(pp)]
    written = str(setting.stage_layers)
    try:
        sizes = list(read_sizes(written.replace("+", ",")))
    except RunError:
        message = f"stage_layers must be whole numbers joined by + (19+20+21 or 19+3*20), got {written}"
        raise RequestError(message) from None
    if len(sizes) != pp:
        message = f"stage_layers must have pp = {pp} numbers, got {written}"
        raise RequestError(message)
    sizes[0] -= len(pattern.leading)
    sizes[-1] -= len(pattern.trailing)
    if any(size < 0 or size % len(pattern.period) for size in sizes):
        message = f"stage_layers must be whole groups of {len(pattern.period)} layers, got {written}"
        raise RequestError(message)
    return [size // len(pattern.period) for size in sizes]


def _recompute(setting: Setting, request: PlanRequest) -> tuple[int, list[str]]:
    """The index of the recompute set, and a sentence where modules of it free nothing."""
    if setting.recompute == "none":
        return 0, []
    asked = {name.strip() for name in setting.recompute.split("+")}
    unknown = asked.difference(rules.RECOMPUTE_MODULES)
    if unknown:
        allowed = f"none or some of {', '.join(rules.RECOMPUTE_MODULES)}, joined by +"
        message = f"check.recompute must be {allowed}, got {setting.recompute!r}"
        raise RequestError(message)
    model = CostModel(request)
    frees = {"full"} if "full" in asked else asked & model.recompute_modules
    idle = "" if "full" in asked else " and ".join(sorted(asked - frees))
    notes = [f"Recomputing {idle} frees nothing of this model under this recipe."] if idle else []
    for index in model.recompute_sets:
        if model.recompute_modules.intersection(RECOMPUTE_SETS[index]) == frees:
            return index, notes
    sets = "; ".join("+".join(RECOMPUTE_SETS[index]) for index in model.recompute_sets if index)
    message = f"check.recompute must be none or one of {sets}; got {setting.recompute!r}"
    raise RequestError(message)


def _written(value: Any) -> str:
    """A value as `pairs` reads it."""
    return value if isinstance(value, str) else json.dumps(value)

"""What the search is asked: resolved specs, and the readings and defaults that went into them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from cost_models.specs import catalog
from cost_models.specs.base import NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, Spec, frozen
from cost_models.specs.cluster import ClusterSpec
from cost_models.specs.errors import did_you_mean
from cost_models.specs.gpu import GpuSpec
from cost_models.specs.measured_profile import MeasuredProfile
from cost_models.specs.model import ModelSpec
from cost_models.specs.profile import HardwareProfile
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.units import format_tokens, parse_bytes, parse_count, parse_positive_int
from cost_models.specs.workload import WorkloadSpec, default_workload
from planner import given_profile, rules
from planner.errors import RequestError
from planner.flag_values import SEARCHABLE, TARGETS
from planner.overrides import Overrides
from planner.recipe_parts import with_optimizer
from planner.rules import FLEXIBLE, OPTIMIZERS, PRECISIONS, SCHEDULES

DEFAULT_RECIPE = "megatron"
DEFAULT_GAP = 0.005
DEFAULT_TOP_K = 5
MAX_SEQUENCES = 10**9
SEARCHED = ("1f1b", "interleaved", "gpipe")
"""The schedules of a search that names neither schedules nor a target."""


@dataclass(frozen=True)
class Progress:
    """How far a search is: layouts seen and in all, best step and bound so far in seconds (None before the first)."""

    layouts_seen: int
    layouts_total: int
    best_s: float | None
    bound_s: float | None


# Wall time of a search that is to return its first plan, or that has none left, seconds.
NO_TIME_S = 1e-9


def precisions_of(gpu: GpuSpec, profile: HardwareProfile) -> tuple[str, ...]:
    """The data types of matrix products that a GPU has and whose rate its profile knows."""
    return tuple(name for name in PRECISIONS if name in gpu.peak_flops and name in profile.gemm)


class PlanRequest(Spec):
    """Everything that decides a plan; equal requests give byte-identical documents."""

    label: ClassVar[str] = "request"

    model: ModelSpec
    cluster: ClusterSpec
    workload: WorkloadSpec
    profile: HardwareProfile
    recipe: FrameworkRecipe
    capacity_bytes: PositiveFloat = Field(description="usable bytes of one GPU")
    target: Literal[TARGETS] = Field("any", description="what the plan is to run on")  # type: ignore[valid-type]
    least_pp: PositiveInt = Field(1, description="fewest pipeline ranks of a layout")
    schedules: Annotated[tuple[str, ...], Field(min_length=1)] = Field(
        SEARCHED, description="pipeline schedules to search"
    )
    fixed: Annotated[Mapping[str, NonNegativeInt], AfterValidator(frozen)] = Field(
        {}, description="values that columns of the layouts are held to"
    )
    zero_stage: Annotated[NonNegativeInt, Field(le=3)] | None = Field(
        None, description="the only ZeRO stage to search, None = all"
    )
    recompute: Literal["none", "selective", "full"] | None = Field(
        None, description="the only kind of recompute to search (full: of every layer), None = all"
    )
    search: tuple[Literal[SEARCHABLE], ...] = Field(  # type: ignore[valid-type]
        (), description="what is searched beside the usual"
    )
    gap: Annotated[NonNegativeFloat, Field(lt=1)] = Field(
        DEFAULT_GAP, description="relative gap at which a plan counts as optimal"
    )
    time_limit_s: PositiveFloat | None = Field(None, description="wall time after which the best so far is returned")
    top_k: Annotated[PositiveInt, Field(le=1000)] = Field(DEFAULT_TOP_K, description="plans to tell: best and nearest")
    assumptions: tuple[str, ...] = Field((), description="readings and defaults, one sentence each")

    @model_validator(mode="after")
    def _gpu_has_precision(self) -> Self:
        asked, known = self.workload.precision, precisions_of(self.cluster.gpu, self.profile)
        if asked not in known:
            message = f"workload.precision must be {' or '.join(known)} on {self.cluster.gpu.name}, got {asked}"
            raise ValueError(message)
        return self

    def after(self, spent_s: float) -> Self:
        """The request with what is left of its time limit after so many seconds."""
        if self.time_limit_s is None:
            return self
        return self.replaced(time_limit_s=max(self.time_limit_s - spent_s, NO_TIME_S))


@dataclass(frozen=True)
class HardwareFlags:
    """The flags that say what the model trains on, as they were given."""

    gpus: int | str | None
    mem: str | None
    gpu: str | None
    cluster: str | ClusterSpec | None
    nodes: int | str | None
    gpus_per_node: int | str | None
    profile: MeasuredProfile | None = None


@dataclass(frozen=True)
class Hardware:
    """A cluster, the usable bytes of one of its GPUs and how both were read."""

    cluster: ClusterSpec
    capacity_bytes: int
    assumptions: tuple[str, ...]


def build_request(
    model: str | ModelSpec,
    gpus: int | str | None = None,
    mem: str | None = None,
    *,
    gpu: str | None = None,
    cluster: str | ClusterSpec | None = None,
    nodes: int | str | None = None,
    gpus_per_node: int | str | None = None,
    profile: str | None = None,
    seq_len: str | int | None = None,
    global_batch: int | str | None = None,
    global_batch_tokens: str | int | None = None,
    recipe: str | FrameworkRecipe | None = None,
    target: str = "any",
    schedule: str | None = None,
    precision: str | None = None,
    optimizer: str | None = None,
    search: str | None = None,
    gap: float = DEFAULT_GAP,
    time_limit_s: float | None = None,
    top_k: int = DEFAULT_TOP_K,
    overrides: Sequence[str] = (),
) -> PlanRequest:
    """The request that names (or specs) and sizes stand for, with the defaults filled in and told in `assumptions`.

    `profile` is the file of a measured one, in place of the catalog's. `overrides` are `spec.field=value` texts for any
    field of model, cluster, workload, recipe and profile.
    Raises RequestError or SpecError, which name the flag or field, the value and what is allowed.
    """
    changes, measured = Overrides.parse(overrides), given_profile.given(profile)
    loaded, model_notes = (model, ()) if isinstance(model, ModelSpec) else catalog.load_model_with_notes(model)
    model_spec = changes.applied(loaded)
    hardware = _hardware(changes, HardwareFlags(gpus, mem, gpu, cluster, nodes, gpus_per_node, measured))
    num_gpus = hardware.cluster.gpus
    workload, workload_notes = _workload(model_spec, num_gpus, seq_len, global_batch, global_batch_tokens)
    check_target(target)
    beside = _names(search, "--search", SEARCHABLE) if search is not None else ()
    if "meshes" in beside and target != "runtime":
        message = f"--search meshes needs --target runtime: no launcher has stages of different sizes, got {target}"
        raise RequestError(message)
    default_recipe = catalog.keys("frameworks").get(target, DEFAULT_RECIPE)
    workload, recipe_spec = _recipe(workload, recipe or default_recipe, precision, optimizer)
    profile_spec = measured.profile if measured else catalog.load_profile(hardware.cluster.gpu.name)
    recipe_spec, measured_notes = given_profile.recipe_on(recipe_spec, profile_spec)
    recipe_note = () if recipe else (f"Without --recipe the {default_recipe} recipe holds.",)
    return PlanRequest(
        model=model_spec,
        cluster=hardware.cluster,
        workload=changes.applied(workload),
        profile=changes.applied(profile_spec),
        recipe=changes.applied(recipe_spec),
        capacity_bytes=hardware.capacity_bytes,
        target=target,
        schedules=_known(schedule, target),
        search=beside,
        gap=gap,
        time_limit_s=time_limit_s,
        top_k=top_k,
        assumptions=(
            *model_notes,
            *hardware.assumptions,
            *(given_profile.sentences(measured) if measured else _profile_notes(hardware.cluster.gpu.name)),
            *workload_notes,
            *recipe_note,
            *measured_notes,
            *_target_note(target),
            *changes.sentences(),
        ),
    )


def _target_note(target: str) -> tuple[str, ...]:
    """What to tell of a search for one target."""
    return () if target == "any" else (f"Only plans that {target} can express are searched.",)


def _profile_notes(gpu: str) -> tuple[str, ...]:
    """What to tell of a profile whose constants were not measured on the GPU itself."""
    measured = catalog.measured_gpu(gpu)
    return () if measured == gpu else (f"No constants are measured on {gpu}: those of {measured} are scaled to it.",)


def check_target(target: str) -> None:
    """Raises RequestError when there is no target of this name."""
    if target not in TARGETS:
        message = f"--target must be one of {', '.join(TARGETS)}, got {target!r}{did_you_mean(target, TARGETS)}"
        raise RequestError(message)


def schedules_of(target: str) -> tuple[str, ...]:
    """The schedules that are searched for a target: those that it runs, and 1f1b, which a single stage runs."""
    if target == "any":
        return SEARCHED
    every = {"pp": 2, "tied": 0, "schedule": np.arange(len(SCHEDULES))}
    runs = np.broadcast_to(rules.expressible(every, target, fields=("pp", "schedule")), len(SCHEDULES))
    return tuple(name for name, does in zip(SCHEDULES, runs, strict=True) if does or name == "1f1b")


def _known(schedule: str | None, target: str) -> tuple[str, ...]:
    """The schedules named, one or several with commas between, or the target's.

    Raises RequestError for a name that there is not.
    """
    return schedules_of(target) if schedule is None else _names(schedule, "--schedule", (*SCHEDULES, FLEXIBLE))


def _names(text: str, flag: str, known: tuple[str, ...]) -> tuple[str, ...]:
    """The names in a text with commas between, each once. Raises RequestError for one that is none of those known."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            message = f"{flag} must be one or several of {', '.join(known)}, got {name!r}{hint}"
            raise RequestError(message)
    return names


def _recipe(
    workload: WorkloadSpec, recipe: str | FrameworkRecipe, precision: str | None, optimizer: str | None
) -> tuple[WorkloadSpec, FrameworkRecipe]:
    """The workload under a precision and an optimizer, and the recipe with the states of that optimizer.

    Raises RequestError for a name that there is not.
    """
    for flag, name, known in (("--precision", precision, PRECISIONS), ("--optimizer", optimizer, OPTIMIZERS)):
        if name is not None and name not in known:
            message = f"{flag} must be one of {', '.join(known)}, got {name!r}{did_you_mean(name, known)}"
            raise RequestError(message)
    workload = workload.replaced(precision=precision or workload.precision)
    spec = recipe if isinstance(recipe, FrameworkRecipe) else catalog.load_recipe(recipe)
    return with_optimizer(workload, spec, optimizer or workload.optimizer)


def _hardware(changes: Overrides, flags: HardwareFlags) -> Hardware:
    """The cluster that the flags name, of as many GPUs as they ask for."""
    notes: list[str] = []
    preset = _preset(flags, notes)
    given = flags.gpus_per_node
    per_node = preset.gpus_per_node if given is None else parse_positive_int(given, "--gpus-per-node")
    count = _gpu_count(flags, per_node)
    if flags.profile is not None and flags.cluster is None:
        preset, note = given_profile.reaching(flags.profile, count)
        notes += note
    if given is not None:
        preset = _with_nodes_of(preset, per_node)
    spec = changes.applied(preset.with_gpus(count))
    if flags.cluster is None:
        nodes = f"{spec.nodes:,} {spec.name} node{'s' * (spec.nodes != 1)} of {spec.gpus_per_node}"
        notes.append(f"Without --cluster, {spec.gpus:,} GPUs are {nodes}.")
    capacity = catalog.capacity_bytes(spec.gpu, flags.mem)
    return Hardware(spec, capacity.bytes, (f"Memory of one GPU: {capacity.reading}.", *notes))


def _preset(flags: HardwareFlags, notes: list[str]) -> ClusterSpec:
    """The devices of a measured profile, the named cluster, or the usual one of a GPU: the named one, or the one that
    the memory size stands for."""
    if flags.profile is not None:
        return given_profile.preset(flags.profile, flags.gpu, flags.cluster)
    if flags.cluster is not None:
        given = flags.cluster if isinstance(flags.cluster, ClusterSpec) else None
        preset = given or _named_cluster(str(flags.cluster))
        if flags.gpu is not None and catalog.load_gpu(flags.gpu).name != preset.gpu.name:
            of = f"--cluster {given.name if given else flags.cluster}, whose GPU is {preset.gpu.name}"
            message = f"--gpu {flags.gpu} contradicts {of}; give one of them"
            raise RequestError(message)
        return preset
    if flags.gpu is not None:
        return catalog.default_cluster(flags.gpu, 1)
    if flags.mem is None:
        message = "the hardware is missing: give --gpu, --cluster or --mem (80GB stands for an H100)"
        raise RequestError(message)
    return catalog.default_cluster(_gpu_of(flags.mem, notes).name, 1)


def _named_cluster(name: str) -> ClusterSpec:
    """One GPU of a preset or a file. Raises RequestError for a file of several kinds of nodes."""
    mixed = catalog.load_mixed_cluster(name)
    if mixed is None:
        return catalog.load_cluster(name, 1)
    kinds = ", ".join(dict.fromkeys(group.cluster or group.gpu or "" for group in mixed.groups))
    message = (
        f"--cluster {name} has groups of several kinds of nodes, of which only a plan can be asked: name one kind here "
        f"({kinds}) and --gpus"
    )
    raise RequestError(message)


def _gpu_of(mem: str, notes: list[str]) -> GpuSpec:
    """The GPU that a memory size alone stands for: the card sold with it, else the nearest one."""
    size = parse_bytes(mem, "--mem")
    named = catalog.nominal_gpu(size.bytes) if size.is_nominal else None
    if named is not None:
        notes.append(f"Without --gpu or --cluster, --mem {mem.strip()} stands for {named.name}.")
        return named
    cards = [catalog.load_gpu(name) for name in catalog.names("gpus")]
    usual = [card for card in cards if catalog.nominal_gpu(card.nominal_memory_bytes) == card]
    nearest = min(usual, key=lambda card: (abs(math.log(card.nominal_memory_bytes / size.bytes)), card.name))
    notes.append(
        f"{mem.strip()} alone stands for no GPU: planned for {nearest.name}, the nearest that a size stands for; "
        "--gpu names another."
    )
    return nearest


def _with_nodes_of(preset: ClusterSpec, gpus_per_node: int) -> ClusterSpec:
    """The cluster with other nodes; a first tier that spans a node goes on spanning it."""
    tiers = preset.tiers
    if tiers[0].domain_gpus == preset.gpus_per_node:
        tiers = (tiers[0].replaced(domain_gpus=gpus_per_node), *tiers[1:])
    return preset.replaced(gpus_per_node=gpus_per_node, tiers=tiers)


def _gpu_count(flags: HardwareFlags, gpus_per_node: int) -> int:
    if flags.nodes is None:
        if flags.gpus is None and isinstance(flags.cluster, ClusterSpec):
            return flags.cluster.gpus
        if flags.gpus is None:
            message = "the number of GPUs is missing: give --gpus or --nodes"
            raise RequestError(message)
        return parse_positive_int(flags.gpus, "--gpus")
    count = parse_positive_int(flags.nodes, "--nodes") * gpus_per_node
    if flags.gpus is not None and parse_positive_int(flags.gpus, "--gpus") != count:
        nodes = f"--nodes {flags.nodes}, which are {count} GPUs at {gpus_per_node} a node"
        message = f"--gpus {flags.gpus} contradicts {nodes}"
        raise RequestError(message)
    return count


def _workload(
    model: ModelSpec, gpus: int, seq_len: str | int | None, batch: int | str | None, batch_tokens: str | int | None
) -> tuple[WorkloadSpec, list[str]]:
    """The step that the flags describe, and a sentence for each default and rounding."""
    default = default_workload(model, gpus)
    length = default.seq_len if seq_len is None else parse_count(str(seq_len), "--seq-len")
    notes = [] if seq_len else [f"Without --seq-len a sequence has {length:,} tokens."]
    if length > model.max_seq_len:
        notes.append(f"{length:,} tokens are beyond the {model.max_seq_len:,} that {model.name} was made for.")
    if batch is not None and batch_tokens is not None:
        message = (
            f"--global-batch {batch} and --global-batch-tokens {batch_tokens} say the same thing; give one of them"
        )
        raise RequestError(message)
    if batch is not None:
        sequences = parse_positive_int(batch, "--global-batch", MAX_SEQUENCES)
        return WorkloadSpec(seq_len=length, global_batch=sequences), notes
    tokens = default.tokens if batch_tokens is None else parse_count(str(batch_tokens), "--global-batch-tokens")
    if batch_tokens is not None and tokens < length:
        message = f"--global-batch-tokens must be >= the sequence length {length}, got {batch_tokens}"
        raise RequestError(message)
    sequences = max(1, round(tokens / length))
    if batch_tokens is None:
        notes.append(
            f"Without --global-batch a step has {sequences:,} sequences, {format_tokens(sequences * length)} tokens."
        )
    elif sequences * length != tokens:
        notes.append(
            f"--global-batch-tokens {batch_tokens} is rounded to {sequences:,} sequences of {length:,} tokens."
        )
    return WorkloadSpec(seq_len=length, global_batch=sequences), notes

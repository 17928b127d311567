"""What the project's own runtime honours of a plan. It refuses others before they start; documents say so, too."""

from collections.abc import Iterator

from cost_models import schedules
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.specs.base import Spec
from planner.document.job import CHUNKS_PER_RANK, Job, StageJob, action_table, virtual_stages
from planner.document.runs import in_runs

__all__ = ["MODULES", "SCHEDULES", "faults"]

MODULES = ("norm", "activation", "core_attention", "mlp", "full")
SCHEDULES = tuple(name for name in schedules.NAMES if name not in (*schedules.SLICED, "dualpipe"))
OFFLOADS = ("weights", "gradients", "optimizer", "activations")


def faults(job: Job) -> tuple[str, ...]:
    """A line for each field of the job that is not honoured: what it must be and what it is."""
    return (*_model_faults(job), *_layout_faults(job), *_stage_faults(job), *_recipe_faults(job))


def _model_faults(job: Job) -> Iterator[str]:
    model, tp = job.model, job.layout.tp
    for field, value, allowed in (
        ("moe", model.moe, None),
        ("mla", model.mla, None),
        ("mtp_layers", model.mtp_layers, 0),
        ("attention_sinks", model.attention_sinks, False),
    ):
        if value != allowed:
            yield f"model.{field} must be {_shown(allowed)} to run here, got {_shown(value)}"
    if model.positions == "alibi":
        yield "model.positions must be rope, learned or none to run here, got alibi"
    if model.qk_norm == "projection" and tp > 1:
        yield f"model.qk_norm must be none or head with tp above 1 to run here, got projection with tp {tp}"
    if model.positions == "learned" and job.workload.seq_len > model.max_seq_len:
        limit = f"model.max_seq_len ({model.max_seq_len}) with learned positions"
        yield f"workload.seq_len must be <= {limit}, got {job.workload.seq_len}"


def _layout_faults(job: Job) -> Iterator[str]:
    layout, model, seq_len = job.layout, job.model, job.workload.seq_len
    for field in ("ep", "etp", "slices"):
        if getattr(layout, field) != 1:
            yield f"parallelism.{field} must be 1 to run here, got {getattr(layout, field)}"
    for field, whole in (("heads", model.heads), ("ffn", model.ffn)):
        if whole % layout.tp:
            yield f"parallelism.tp must divide model.{field} ({whole}), got {layout.tp}"
    if model.kv_heads % layout.tp and layout.tp % model.kv_heads:
        yield f"parallelism.tp must divide or be a multiple of model.kv_heads ({model.kv_heads}), got {layout.tp}"
    yield from _context_faults(job)
    if layout.sequence_parallel and seq_len // layout.cp % layout.tp:
        part = f"workload.seq_len ({seq_len})" if layout.cp == 1 else f"workload.seq_len / cp ({seq_len // layout.cp})"
        yield f"parallelism.tp must divide {part} with sequence_parallel, got {layout.tp}"
    yield from _schedule_faults(job)


def _context_faults(job: Job) -> Iterator[str]:
    layout, seq_len = job.layout, job.workload.seq_len
    if layout.cp == 1:
        return
    if layout.cp_type != "all_gather":
        yield f"parallelism.cp_type must be all_gather to run here, got {layout.cp_type}"
    if seq_len % (CHUNKS_PER_RANK * layout.cp):
        rule = f"must divide workload.seq_len ({seq_len}) into {CHUNKS_PER_RANK} chunks a rank"
        yield f"parallelism.cp {rule}, got {layout.cp}"


def _schedule_faults(job: Job) -> Iterator[str]:
    layout = job.layout
    if layout.schedule not in SCHEDULES:
        yield f"parallelism.schedule must be one of {', '.join(SCHEDULES)} to run here, got {layout.schedule}"
    elif layout.slices == 1:
        try:
            action_table(job)
        except IllegalScheduleError as error:
            yield f"parallelism.schedule cannot run: {error}"


def _stage_faults(job: Job) -> Iterator[str]:
    ranks_of: dict[str, list[int]] = {}
    for rank, stage in enumerate(job.stages):
        for fault in _faults_of(stage):
            ranks_of.setdefault(fault, []).append(rank)
    yield from (f"stages[{in_runs(ranks)}].{fault}" for fault, ranks in ranks_of.items())
    ends = virtual_stages(job)[0].rank, virtual_stages(job)[-1].rank
    levels = [job.stages[rank].zero_stage for rank in ends]
    if job.model.tie_embeddings and (levels[0] == 0) != (levels[1] == 0):
        rule = "must both be 0 or both be above with tie_embeddings"
        yield f"stages[{ends[0]}].zero_stage and stages[{ends[1]}].zero_stage {rule}, got {levels[0]} and {levels[1]}"


def _faults_of(stage: StageJob) -> Iterator[str]:
    """What many stages may share, without their numbers."""
    for part in OFFLOADS:
        if getattr(stage.offload, part):
            yield f"offload.{part} must be 0 to run here, got {getattr(stage.offload, part)}"
    unknown = [module for module in stage.recompute.set if module not in MODULES]
    if unknown:
        yield f"recompute.set must be of {', '.join(MODULES)} to run here, got {', '.join(unknown)}"
    if stage.reshard_after_forward and stage.zero_stage < 3:
        yield f"reshard_after_forward must be false below zero_stage 3, got zero_stage {stage.zero_stage}"


def _recipe_faults(job: Job) -> Iterator[str]:
    recipe = job.recipe
    if job.workload.precision != "bf16":
        yield f"workload.precision must be bf16 to run here, got {job.workload.precision}"
    if job.workload.optimizer != "adamw":
        yield f"workload.optimizer must be adamw to run here, got {job.workload.optimizer}"
    if recipe.master_bytes and recipe.weight_bytes != 2:
        yield f"recipe.weight_bytes must be 2 with master weights to run here: bf16, got {recipe.weight_bytes:g}"
    stored = recipe.master_bytes or recipe.weight_bytes
    if stored not in (2, 4):
        field = "master_bytes" if recipe.master_bytes else "weight_bytes"
        yield f"recipe.{field} must be 2 or 4 to run here: bf16 or fp32 parameters, got {stored:g}"
    elif recipe.moment_bytes != 2 * stored:
        rule = f"must be {2 * stored:g}, two moments like the parameters"
        yield f"recipe.moment_bytes {rule}, got {recipe.moment_bytes:g}"
    if recipe.gradient_reduce_bytes not in (2, 4):
        yield f"recipe.gradient_reduce_bytes must be 2 or 4 to run here, got {recipe.gradient_reduce_bytes:g}"
    elif recipe.gradient_bytes != recipe.gradient_reduce_bytes:
        rule = f"must be recipe.gradient_reduce_bytes ({recipe.gradient_reduce_bytes:g}) to run here"
        yield f"recipe.gradient_bytes {rule}, got {recipe.gradient_bytes:g}"
    if recipe.parameter_gather_bytes != 2:
        yield f"recipe.parameter_gather_bytes must be 2 to run here: bf16, got {recipe.parameter_gather_bytes:g}"
    if recipe.dropout:
        yield "recipe.dropout must be false to run here, got true"


def _shown(value: object) -> str:
    if isinstance(value, Spec):
        return "one"
    return str(value) if value is not None and not isinstance(value, bool) else str(value).lower()

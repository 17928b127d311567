"""What this runtime does not honour is refused with the field named."""

import ast
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import BaseModel

import runtime
from cost_models.specs.model import ModelSpec
from cost_models.specs.recipe import FrameworkRecipe
from cost_models.specs.workload import WorkloadSpec
from planner.document import Chunk, Offload, Parallelism, Recompute, Stage, honoured
from planner.document import job as job_module
from planner.document.job import Job
from runtime.errors import UnsupportedPlanError
from runtime.support import check
from tests.runtime.jobs import RECIPE, small_job, small_model

BASE = small_job(small_model(), tp=2, pp=2, micro_batches=4)


def with_layout(**changes: object) -> Job:
    """The base job with some fields of its layout changed."""
    return replace(BASE, layout=BASE.layout.replaced(**changes))


def with_model(**changes: object) -> Job:
    """The base job with some fields of its model changed."""
    return replace(BASE, model=BASE.model.replaced(**changes))


def with_recipe(**changes: object) -> Job:
    """The base job with some fields of its recipe changed."""
    return replace(BASE, recipe=RECIPE.replaced(**changes))


def with_stage(**changes: object) -> Job:
    """The base job with some fields of its second stage changed."""
    return replace(BASE, stages=(BASE.stages[0], replace(BASE.stages[1], **changes)))  # type: ignore[arg-type]


def with_length(seq_len: int, **changes: object) -> Job:
    """The base job with another sequence length and some fields of its layout changed."""
    return replace(with_layout(**changes), workload=BASE.workload.replaced(seq_len=seq_len))


REFUSED: list[tuple[str, Job]] = [
    ("model.moe", with_model(moe={"experts": 4, "top_k": 1, "expert_ffn": 16})),
    ("model.mtp_layers", with_model(mtp_layers=1)),
    ("model.attention_sinks", with_model(attention_sinks=True)),
    ("model.positions", with_model(positions="alibi")),
    ("model.qk_norm", with_model(qk_norm="projection")),
    ("workload.precision", replace(BASE, workload=BASE.workload.replaced(precision="fp8"))),
    *(
        ("workload.optimizer", replace(BASE, workload=BASE.workload.replaced(optimizer=name)))
        for name in ("adamw-8bit", "precision-aware")
    ),
    ("workload.seq_len", replace(with_model(positions="learned"), workload=BASE.workload.replaced(seq_len=32))),
    ("parallelism.cp_type", with_layout(cp=2, gpus_used=8, cp_type="ring")),
    ("parallelism.cp", with_length(18, cp=2, gpus_used=8, sequence_parallel=False)),
    ("parallelism.tp", with_length(12, tp=4, cp=2, gpus_used=16)),
    ("parallelism.ep", with_layout(ep=2)),
    ("parallelism.slices", with_layout(slices=2)),
    ("parallelism.schedule", with_layout(schedule="dualpipe")),
    ("parallelism.schedule", with_layout(schedule="interleaved", num_microbatches=3)),
    ("parallelism.tp", with_model(ffn=49)),
    ("parallelism.tp", replace(BASE, workload=BASE.workload.replaced(seq_len=15))),
    *(
        (f"stages[1].offload.{part}", with_stage(offload=Offload(**{part: 0.5})))
        for part in ("weights", "gradients", "optimizer", "activations")
    ),
    ("stages[1].recompute.set", with_stage(recompute=Recompute(set=("mla_up_proj",), layers=1))),
    ("stages[1].reshard_after_forward", with_stage(zero_stage=2, reshard_after_forward=True)),
    ("stages[1].zero_stage", replace(with_stage(zero_stage=0), model=BASE.model.replaced(tie_embeddings=True))),
    ("recipe.master_bytes", with_recipe(master_bytes=8)),
    ("recipe.weight_bytes", with_recipe(master_bytes=0, weight_bytes=1)),
    ("recipe.weight_bytes", with_recipe(weight_bytes=4)),
    ("recipe.moment_bytes", with_recipe(moment_bytes=2)),
    ("recipe.gradient_bytes", with_recipe(gradient_bytes=6)),
    ("recipe.gradient_reduce_bytes", with_recipe(gradient_reduce_bytes=1)),
    ("recipe.parameter_gather_bytes", with_recipe(parameter_gather_bytes=1)),
    ("recipe.dropout", with_recipe(dropout=True)),
]


# What says how fast or large a run is, or describes it, and not what a rank does.
DESCRIPTIVE: dict[type[BaseModel], tuple[str, ...]] = {
    ModelSpec: ("source", "full_attention_step"),  # which layer_kinds reads
    WorkloadSpec: ("expert_imbalance", "document_mask_imbalance"),
    Parallelism: ("gpus_idle", "cp_type", "cp_heads"),  # of cp, which is 1
    Stage: ("has_embedding", "has_head"),  # the schedule places them, which documents check
    Chunk: (),
    Recompute: (),
    Offload: (),
    FrameworkRecipe: (
        *("tuned_rate", "launch_factor", "launches_per_expert", "cuda_graphs", "cuda_graphs_without_experts"),
        *("flash_attention", "attention_kernel", "fused_norm", "fused_activation", "fused_rope"),
        *("fused_biased_activation", "fused_gradient_accumulation", "recompute_stops_early", "keeps_cast_operands"),
        *("keeps_gathered_operands", "keeps_stage_outputs", "overlap_gradient_reduce", "reduces_in_buckets"),
        *("reduces_each_micro_batch",),  # when sharded gradients are reduced: values are the same
        *("overlap_parameter_gather", "overlap_tensor_parallel", "overlap_expert_parallel", "expert_dispatcher"),
        *("loss_bytes_per_logit", "loss_traffic_bytes", "stranded_logit_bytes", "library_bytes", "kernel_bytes"),
        *("fragmentation_fraction", "growing_segments", "placeholder_gradient_bytes", "communicator_bytes"),
        *("optimizer_temporary_bytes", "optimizer_group_elements", "norm_copy_bytes", "norm_of_shards", "sources"),
        *("split_keeps_graph", "splits_first_stage", "host_runs_ahead"),
        *("parameter_copy_bytes", "gradient_copy_bytes"),  # what laying them out costs, not how it is done
        # Habits of a framework that a plan was made under and says itself.
        *("interleaves", "fills_stages", "reshards_in_pipeline"),
    ),
}
PARTS = tuple(DESCRIPTIVE)


def test_the_base_is_honoured() -> None:
    """So each refusal below is of the one field that was changed."""
    check(BASE)


@pytest.mark.parametrize(("field", "job"), REFUSED, ids=[field for field, _ in REFUSED])
def test_a_refusal_names_the_field(field: str, job: Job) -> None:
    """One line, of that field."""
    with pytest.raises(UnsupportedPlanError) as refused:
        check(job)
    (line,) = str(refused.value).splitlines()
    assert field in line.split(" must ")[0].split(" cannot ")[0]


def names_read_by(package: Path) -> set[str]:
    """Attributes that a package reads, with the check beside the document, and those that the check reads by name."""
    checks = [ast.parse(Path(module.__file__).read_text(encoding="utf-8")) for module in (honoured, job_module)]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in package.glob("*.py")] + checks
    found = {node.attr for tree in trees for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    tuples = [node for node in ast.walk(checks[0]) if isinstance(node, ast.Tuple)]
    return found | {one.value for node in tuples for one in node.elts if isinstance(one, ast.Constant)}


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.__name__)
def test_every_field_of_a_plan_is_honoured_or_refused(part: type[BaseModel]) -> None:
    """The runtime reads it or the check names it; the rest are those that change nothing that a rank does."""
    read = names_read_by(Path(runtime.__file__).parent)
    left = set(part.model_fields) - read
    assert left <= set(DESCRIPTIVE[part]), "fields that nothing here reads"
    assert set(DESCRIPTIVE[part]) <= set(part.model_fields), "fields that documents lack"


def test_stages_with_the_same_fault_share_a_line() -> None:
    """A pipeline has tens of them."""
    job = small_job(small_model(8), pp=8, micro_batches=8)
    stages = [
        replace(stage, offload=Offload(weights=0.5)) if rank != 3 else stage for rank, stage in enumerate(job.stages)
    ]
    with pytest.raises(UnsupportedPlanError) as refused:
        check(replace(job, stages=tuple(stages)))
    assert str(refused.value) == "stages[0-2, 4-7].offload.weights must be 0 to run here, got 0.5"


def test_a_part_of_the_model_is_told_without_its_fields() -> None:
    """Experts have many."""
    with pytest.raises(UnsupportedPlanError, match=r"model\.moe must be none to run here, got one$"):
        check(with_model(moe={"experts": 4, "top_k": 1, "expert_ffn": 16}))


def test_all_faults_are_told_at_once() -> None:
    """A line each."""
    job = replace(with_recipe(dropout=True), model=BASE.model.replaced(mtp_layers=1))
    with pytest.raises(UnsupportedPlanError, match=r"(?s)model\.mtp_layers.*\n.*recipe\.dropout"):
        check(job)

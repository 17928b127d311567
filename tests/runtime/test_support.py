"""What this runtime does not honour is refused with the field named."""

from dataclasses import replace

import pytest

from planner.document import Offload, Recompute
from runtime.errors import UnsupportedPlanError
from runtime.job import Job
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
    ("recipe.moment_bytes", with_recipe(moment_bytes=2)),
    ("recipe.gradient_bytes", with_recipe(gradient_bytes=6)),
    ("recipe.gradient_reduce_bytes", with_recipe(gradient_reduce_bytes=1)),
    ("recipe.parameter_gather_bytes", with_recipe(parameter_gather_bytes=1)),
    ("recipe.dropout", with_recipe(dropout=True)),
]


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


def test_all_faults_are_told_at_once() -> None:
    """A line each."""
    job = replace(with_recipe(dropout=True), model=BASE.model.replaced(mtp_layers=1))
    with pytest.raises(UnsupportedPlanError, match=r"(?s)model\.mtp_layers.*\n.*recipe\.dropout"):
        check(job)

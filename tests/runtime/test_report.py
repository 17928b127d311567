"""What a run says of itself at its end: a table that `plan evaluate` reads back as the plan that was run."""

import csv
import io
from typing import Any

import pytest

from planner.document import PlanDocument, Recompute, read
from planner.evaluate.answers import answers
from planner.evaluate.runs import read_run
from runtime.report import report_text
from tests.golden.jobs import JOBS
from tests.runtime.documents import document_of
from tests.runtime.jobs import MEGATRON, small_job, small_model

GIB = 2.0**30
# Plans whose layout a row of a table can say.
DEGREES = ("tp", "cp", "pp", "vpp", "dp", "dp_shard", "micro_batch_size", "num_microbatches")
PLANS = ("llama3-8b_7", "llama3-8b_8", "gpt3-175b_1024")


def records_of(document: PlanDocument, *times_s: float) -> list[dict[str, Any]]:
    """What a run tells of its steps; every stage is a little slower and fuller than the one before."""
    stages = range(len(document.stages))
    return [
        {
            "stage_step_time_s": [time_s * (1 + stage / 100) for stage in stages],
            "stage_peak_memory_bytes": [int(GIB * (10 + stage + time_s)) for stage in stages],
            "device": "cuda",
        }
        for time_s in times_s
    ]


def rows_of(document: PlanDocument, *times_s: float) -> list[dict[str, str]]:
    """The rows of a run's report."""
    return list(csv.DictReader(io.StringIO(report_text(document, records_of(document, *times_s)))))


@pytest.mark.parametrize("name", PLANS)
def test_evaluate_reads_the_plan_back_and_predicts_it(name: str) -> None:
    """Model, GPUs, layout, placement of layers and sharding of every row are those of the document."""
    document = read(next(job.path for job in JOBS if job.name == name))
    layout = document.parallelism
    rows = rows_of(document, 5.0, 2.0, 2.2)
    assert len(rows) == layout.pp
    for row, stage in zip(rows, document.stages, strict=True):
        run = read_run(dict(row))
        sizes = ("layers", "hidden", "ffn", "heads", "kv_heads", "vocab")
        assert [getattr(run.model, size) for size in sizes] == [getattr(document.model, size) for size in sizes]
        assert run.cluster.gpus == layout.gpus_used
        assert run.workload.seq_len == document.workload.seq_len
        assert run.workload.global_batch == layout.global_batch
        assert run.schedule == layout.schedule
        assert {name: run.layout[name] for name in DEGREES} == {name: getattr(layout, name) for name in DEGREES}
        assert int(run.groups.sum()) == document.model.layers
        assert read_recomputed(row) == (stage.recompute.set or ())
    assert {answer.status for answer in answers([dict(row) for row in rows])} == {"ok"}


def read_recomputed(row: dict[str, str]) -> tuple[str, ...]:
    """The modules that a row recomputes."""
    name = row["recompute"]
    return () if name == "none" else tuple(name.removeprefix("selective:").split("+"))


def test_the_first_step_counts_only_when_it_is_alone() -> None:
    """It pays for warming up. Times are medians by stage, memory the most of any step that counts."""
    document = document_of(small_job(small_model(3), pp=2, layers=(2, 1)))
    first, second = rows_of(document, 9.0, 1.0, 2.0, 3.0)
    assert (float(first["step_time_s"]), float(second["step_time_s"])) == pytest.approx((2.0, 2.02))
    assert (float(first["peak_mem_gib"]), float(second["peak_mem_gib"])) == pytest.approx((13.0, 14.0))
    tokens = document.workload.seq_len * document.parallelism.global_batch
    assert float(first["tokens_per_s_per_gpu"]) == pytest.approx(tokens / 2.0 / 2)
    assert float(rows_of(document, 9.0)[0]["step_time_s"]) == pytest.approx(9.0)


def test_what_no_column_says_stands_in_the_notes() -> None:
    """Stage, device, the group of a hybrid sharding, and how many layers are recomputed."""
    full = Recompute(set=("full",), layers=1)
    job = small_job(small_model(4), pp=2, shard=2, replicate=2, zero=3, reshard=True, recompute=full, recipe=MEGATRON)
    rows = rows_of(document_of(job), 1.0)
    assert rows[1]["notes"] == "stage=1; device=cuda; shard size=2; recomputed layers=1 of 2"
    assert rows[1]["zero_or_fsdp"] == "hsdp"
    assert read_run(dict(rows[1])).layout["dp_replicate"] == 2

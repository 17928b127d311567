"""The plan document: its invariants, its bytes and its behaviour as a file."""

import json
import os
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.specs.errors import SpecError
from planner.document import (
    MEMORY_CAUSES,
    Chunk,
    DocumentError,
    MemoryByCause,
    Recompute,
    check_writable,
    dumps,
    json_schema,
    loads,
    read,
    recompute_summary,
    verdict_of,
    virtual_stages,
    write,
    zero_summary,
)
from tests.planner.sample import GIB, PARALLELISM, sample_document, sample_v_document

CONTRACT = {
    "document": "schema_version tool_version digests model cluster workload recipe parallelism stages predicted "
    "certificate assumptions alternatives recipes heterogeneous launchers env",
    "parallelism": "tp sequence_parallel pp vpp cp cp_type cp_heads ep etp dp dp_shard dp_replicate rank_order "
    "micro_batch_size num_microbatches schedule group_size slices gpus_used gpus_idle",
    "stage": "chunks layers has_embedding has_head zero_stage reshard_after_forward recompute offload predicted",
    "stage_predicted": "forward_s input_grad_s weight_grad_s first_s last_s memory_bytes allocated_bytes "
    "reserved_bytes device_bytes host_bytes",
    "predicted": "step_time_s step_time_low_s step_time_high_s tokens_per_s_per_gpu mfu mfu_full_attention "
    "time_breakdown_s peak_memory_bytes host_memory_bytes verdict measured_share",
    "peak_memory_bytes": "allocated reserved device capacity low high breakdown",
    "certificate": "status objective_s bound_s gap method layouts rows",
    "memory": "weights gradients master_weights moments activations gathered_parameters logits_and_loss workspace "
    "offload_buffers pipeline_buffers communicators context fragmentation",
}


@pytest.fixture
def data() -> dict[str, Any]:
    """The sample as plain JSON data, to be spoilt."""
    return json.loads(dumps(sample_document()))


def test_keys_are_those_of_the_contract(data: dict[str, Any]) -> None:
    """Renaming, adding or dropping a key is a change of the schema, and is noticed."""
    stage = data["stages"][0]
    found = {
        "document": data,
        "parallelism": data["parallelism"],
        "stage": stage,
        "stage_predicted": stage["predicted"],
        "predicted": data["predicted"],
        "peak_memory_bytes": data["predicted"]["peak_memory_bytes"],
        "certificate": data["certificate"],
        "memory": stage["predicted"]["memory_bytes"],
    }
    assert {name: " ".join(part) for name, part in found.items()} == CONTRACT
    assert list(stage["chunks"][0]) == ["first_layer", "layers"]
    assert list(stage["recompute"]) == ["set", "layers"]
    assert list(stage["offload"]) == ["weights", "gradients", "optimizer", "activations"]
    assert list(data["digests"]) == ["profile", "catalog"]
    assert tuple(data["predicted"]["peak_memory_bytes"]["breakdown"]) == MEMORY_CAUSES


def test_reading_back_and_writing_again_changes_no_byte() -> None:
    """Rounding is idempotent: text -> document -> text is the identity."""
    text = dumps(sample_document())
    assert dumps(loads(text)) == text


def test_equal_documents_give_equal_bytes() -> None:
    """The order in which free tables were filled does not show."""
    env = {"B": "2", "A": "1"}
    backwards = dict(reversed(env.items()))
    assert dumps(sample_document(env=env)) == dumps(sample_document(env=backwards))


@given(st.floats(min_value=1e-6, max_value=1e12))
def test_floats_have_nine_significant_digits(bytes_: float) -> None:
    """A written float is the nearest one with nine digits."""
    document = sample_document()
    host = document.predicted.replaced(host_memory_bytes=bytes_)
    written = json.loads(dumps(document.replaced(predicted=host)))["predicted"]["host_memory_bytes"]
    assert written == float(f"{bytes_:.9g}")


def test_the_schema_accepts_the_sample(data: dict[str, Any]) -> None:
    """What `plan schema` prints describes what `plan --json` prints."""
    jsonschema.validate(data, json_schema())
    data["parallelism"]["tp"] = 0
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(data, json_schema())


SPOILT = [
    ("parallelism.tp", 8, "gpus_used must be tp * cp * pp * dp = 512, got 256"),
    ("parallelism.dp_shard", 8, "dp must be dp_shard * dp_replicate = 8, got 16"),
    ("parallelism.ep", 3, "ep * etp must divide the 64 ranks of a pipeline stage, got 3 * 1"),
    ("parallelism.gpus_idle", 1, "gpus_used + gpus_idle must be the cluster's 256 GPUs, got 257"),
    ("parallelism.num_microbatches", 31, "must be workload.global_batch = 512, got 496"),
    ("parallelism.vpp", 4, "stages[0].chunks must have vpp = 4 entries, got 5"),
    ("parallelism.tp", 0, "parallelism.tp must be >= 1, got 0"),
    ("parallelism.tp", "4", "parallelism.tp must be a whole number, got '4'"),
    ("model.layers", 81, "must add up to model.layers = 81, got 80"),
    ("stages.0.layers", 19, "stages[0].layers must be the sum over chunks = 20, got 19"),
    ("stages.1.chunks.0.first_layer", 5, "stages[1].chunks[0].first_layer must be 4, got 5"),
    ("stages.0.has_embedding", False, "stages[0].has_embedding must be True"),
    ("stages.0.has_head", True, "stages[0].has_head must be False"),
    ("stages.0.zero_stage", 4, "stages[0].zero_stage must be <= 3, got 4"),
    ("stages.0.recompute.layers", 21, "recompute.layers must be <= layers = 20, got 21"),
    ("stages.0.recompute.set", [], "give both or neither"),
    ("stages.0.offload.weights", 1.5, "offload.weights must be <= 1, got 1.5"),
    ("stages.0.predicted.memory_bytes.weights", 1.0, "the causes of memory must add up"),
    ("stages.0.predicted.allocated_bytes", 7e10, "allocated must be <= reserved"),
    ("stages.0.predicted.reserved_bytes", 7e10, "reserved must be <= device"),
    ("predicted.step_time_low_s", 16.0, "step_time_s must lie in its band"),
    ("predicted.time_breakdown_s.compute", 1.0, "time_breakdown_s must add up to step_time_s"),
    ("predicted.verdict", "borderline", "verdict must be 'yes'"),
    ("predicted.mfu", 1.2, "predicted.mfu must be <= 1, got 1.2"),
    ("certificate.gap", 0.1, "gap must be (objective_s - bound_s) / objective_s"),
    ("certificate.status", "DONE", "certificate.status must be one of 'OPTIMAL' or 'FEASIBLE', got 'DONE'"),
]


@pytest.mark.parametrize(("path", "value", "message"), SPOILT, ids=[f"{path}={value}" for path, value, _ in SPOILT])
def test_a_contradiction_is_named(data: dict[str, Any], path: str, value: object, message: str) -> None:
    """Each invariant across fields is checked on reading, and the message tells field, value and what is allowed."""
    *parents, last = path.split(".")
    part: Any = data
    for step in parents:
        part = part[int(step) if step.isdecimal() else step]
    part[last] = value
    with pytest.raises(DocumentError) as caught:
        loads(json.dumps(data))
    assert message in str(caught.value)


def test_the_step_time_of_record_is_the_certificates() -> None:
    """A plan cannot promise another time than the one that its certificate is about."""
    certificate = sample_document().certificate.replaced(objective_s=16.0, gap=1 - 15.5738 / 16.0)
    with pytest.raises(SpecError, match=r"objective_s must be predicted.step_time_s = 15.6217, got 16"):
        sample_document(certificate=certificate)


def test_the_peak_is_that_of_the_fullest_stage() -> None:
    """The headline's memory is not a number of its own."""
    emptied = {"allocated_bytes": GIB, "reserved_bytes": GIB, "device_bytes": GIB}
    emptied_causes = MemoryByCause(weights=GIB)
    stages = tuple(
        stage.replaced(predicted=stage.predicted.replaced(memory_bytes=emptied_causes, **emptied))
        for stage in sample_document().stages
    )
    with pytest.raises(SpecError, match=r"the peak of the device must be its fullest stage's 1.07374182e\+09"):
        sample_document(stages=stages)


def test_virtual_stages_run_over_the_ranks_first() -> None:
    """Virtual stage = chunk * pp + rank."""
    document = sample_document()
    order = virtual_stages(document.stages, document.parallelism.schedule)
    assert [chunk.first_layer for chunk in order] == list(range(0, 80, 4))
    assert order[1] == document.stages[1].chunks[0] == Chunk(first_layer=4, layers=4)


def test_virtual_stages_of_a_v_come_back_up_the_ranks() -> None:
    """Rank i holds virtual stages i and 2 pp - 1 - i, rank 0 both ends of the model."""
    document = sample_v_document()
    order = virtual_stages(document.stages, "zb-v")
    assert [chunk.first_layer for chunk in order] == list(range(0, 80, 10))
    assert order[-1] == document.stages[0].chunks[1]
    data = json.loads(dumps(document))
    data["stages"][-1]["has_head"] = True
    with pytest.raises(DocumentError, match=r"stages\[3\].has_head must be False: the first stage has it"):
        loads(json.dumps(data))
    data["parallelism"]["vpp"] = 3
    with pytest.raises(DocumentError, match=r"vpp must be 2 for zb-v, got 3"):
        loads(json.dumps(data))


def test_summaries() -> None:
    """The summaries of alternatives and headline say what differs over the stages, and only that."""
    stages = sample_document().stages
    assert recompute_summary(stages) == "core_attention 20/80"
    full = tuple(stage.replaced(recompute=Recompute(set=("full",), layers=stage.layers)) for stage in stages)
    assert recompute_summary(full) == "full"
    assert recompute_summary(stages[2:]) == "none"
    assert zero_summary(stages) == "1"
    assert zero_summary((stages[0].replaced(zero_stage=3), *stages[1:])) == "1-3"


def test_verdict_follows_the_band() -> None:
    """`no` above, `yes` within, `borderline` across the capacity; touching it is within."""
    assert verdict_of(81, 90, 80) == "no"
    assert verdict_of(70, 80, 80) == "yes"
    assert verdict_of(80, 81, 80) == "borderline"


UNREADABLE = [
    (b"", "is empty"),
    (b" \n", "is empty"),
    (b"plan", "is not JSON"),
    (b'{"schema_version": 1', "is not JSON"),
    (b"[1]", "holds a JSON list, not an object"),
    (b"{}", "schema_version must be an integer >= 1, got None"),
    (b'{"schema_version": true}', "schema_version must be an integer >= 1, got True"),
    (b'{"schema_version": 2}', "was written by schema 2, this tool reads up to 1"),
    (b'{"schema_version": 1, "x": NaN}', "NaN is not a finite number"),
    (b'{"schema_version": 1, "x": 1e999}', "1e999 is not a finite number"),
    (b"\x7fELF\xff\xfe", "is not text"),
    (b"[" * 100_000, "is not JSON"),
    (b'{"schema_version": 1}', "document.tool_version is required"),
]


@pytest.mark.parametrize(("content", "message"), UNREADABLE)
def test_an_unreadable_file_is_explained(tmp_path: Path, content: bytes, message: str) -> None:
    """Whatever a file holds, reading it gives a document or one DocumentError that names the file."""
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(DocumentError) as caught:
        read(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


@given(st.binary(max_size=200))
def test_no_bytes_escape_as_another_error(content: bytes) -> None:
    """Arbitrary bytes are refused with a DocumentError, never anything else."""
    with pytest.raises(DocumentError):
        loads(content)


def test_missing_files_and_folders_are_explained(tmp_path: Path) -> None:
    """A path that is no file is refused with its reason."""
    with pytest.raises(DocumentError, match="no such file"):
        read(tmp_path / "none.json")
    with pytest.raises(DocumentError, match="is a directory"):
        read(tmp_path)


def test_an_unknown_key_is_told_with_the_nearest_one(data: dict[str, Any]) -> None:
    """A typing error in a hand-edited file is found by its path."""
    data["stages"][2]["zero_stge"] = data["stages"][2].pop("zero_stage")
    with pytest.raises(
        DocumentError, match=r"unknown field 'zero_stge' in document.stages\[2\]; did you mean 'zero_stage"
    ):
        loads(json.dumps(data))


def test_a_spec_inside_is_checked_too(data: dict[str, Any]) -> None:
    """Model, cluster, workload and recipe obey their own rules, and the path starts at the document."""
    data["model"]["kv_heads"] = 7
    with pytest.raises(DocumentError, match=r"document.model.kv_heads must divide heads"):
        loads(json.dumps(data))


def test_a_file_is_written_whole_and_keeps_its_mode(tmp_path: Path) -> None:
    """Replacing a file leaves its permissions, links to it, and no other file in the folder."""
    path, link = tmp_path / "plan.json", tmp_path / "link.json"
    path.write_text("old")
    path.chmod(0o640)
    link.symlink_to(path)
    write(sample_document(), link)
    assert link.is_symlink()
    assert read(path) == read(link)
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    assert sorted(item.name for item in tmp_path.iterdir()) == ["link.json", "plan.json"]


def test_a_new_file_gets_the_usual_mode(tmp_path: Path) -> None:
    """The private mode of the temporary file does not stay."""
    write(sample_document(), tmp_path / "plan.json")
    (tmp_path / "usual").touch()
    assert (tmp_path / "plan.json").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_failed_write_loses_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the disk fails in the middle, the old file stands and no remains lie beside it."""

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "plan.json"
    path.write_text("old")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DocumentError, match="cannot write .*plan.json: no space left on device"):
        write(sample_document(), path)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_places_that_cannot_hold_a_file_are_refused(tmp_path: Path) -> None:
    """A folder, and a file in a folder that is not there: told before a search and on writing."""
    for path, reason in ((tmp_path, "it is a directory"), (tmp_path / "no" / "plan.json", "no such file|no folder")):
        with pytest.raises(DocumentError, match=reason):
            check_writable(path)
        with pytest.raises(DocumentError, match=reason):
            write(sample_document(), path)
    check_writable(tmp_path / "plan.json")


def test_a_document_is_frozen() -> None:
    """No part of a plan changes after it was made."""
    document = sample_document()
    with pytest.raises(TypeError, match="frozen"):
        document.parallelism.tp = 2
    with pytest.raises(TypeError, match="frozen"):
        document.env["A"] = "1"


def test_global_batch_is_the_product_of_the_split() -> None:
    """One owner of micro_batch_size * num_microbatches * dp."""
    assert PARALLELISM.global_batch == 512

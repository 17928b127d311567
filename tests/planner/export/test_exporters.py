"""Exports: what stops them, what the files hold, how they are written and what is made of files that are odd."""

import ast
import contextlib
import json
import os
import subprocess
from pathlib import Path

import pytest

from planner.document import Chunk, Offload, PlanDocument, Recompute, Stage
from planner.errors import InexpressibleError, LauncherFileError, PlannerError, RequestError
from planner.export import EXPORTERS, JOB_FILE, LAUNCH_FILE, exported, files_in, imported, written
from planner.launchers import RUNTIME
from planner.rules import RULES
from tests.planner.export.configurations import configurations
from tests.planner.sample import CHUNK_LAYERS, VPP, sample_document, sample_v_document

FULL = Recompute(set=("full",), layers=VPP * CHUNK_LAYERS)
NAMES = pytest.mark.parametrize("launcher", EXPORTERS)


def alike(**changes) -> PlanDocument:
    """The sample with stages that all choose the same."""
    document = sample_document()
    stages = tuple(stage.replaced(**{"recompute": FULL, **changes}) for stage in document.stages)
    return document.replaced(stages=stages)


def uneven() -> PlanDocument:
    """The sample as 1F1B on stages of 19, 20, 21 and 20 layers, all recomputed."""
    document = sample_document()
    stages: list[Stage] = []
    for stage, first, layers in zip(document.stages, (0, 19, 39, 60), (19, 20, 21, 20), strict=True):
        chunks = (Chunk(first_layer=first, layers=layers),)
        recompute = Recompute(set=("full",), layers=layers)
        stages.append(stage.replaced(chunks=chunks, layers=layers, recompute=recompute))
    layout = document.parallelism.replaced(vpp=1, schedule="1f1b", group_size=0)
    return document.replaced(parallelism=layout, stages=tuple(stages))


def zb_v() -> PlanDocument:
    """The sample on ZB-V, every stage alike."""
    document = sample_v_document()
    again = Recompute(set=("full",), layers=20)
    return document.replaced(stages=tuple(stage.replaced(recompute=again) for stage in document.stages))


def fields(document: PlanDocument, launcher: str) -> set[str]:
    """The fields for which an export is refused."""
    with pytest.raises(InexpressibleError) as refused:
        exported(document, launcher)
    assert all(each.id.startswith(launcher) for each in refused.value.refusals)
    return {each.field for each in refused.value.refusals}


@pytest.mark.parametrize("launcher", ["megatron", "bridge", "deepspeed", "nanotron", "maxtext"])
def test_a_launcher_without_zb_v_refuses_it_by_its_schedule(launcher: str) -> None:
    """The field is the schedule; without pipelines at all it is pp."""
    assert "schedule" in fields(zb_v(), launcher)
    assert {"pp"} <= fields(zb_v(), "accelerate") & fields(zb_v(), "trainer") & fields(zb_v(), "axolotl")


@pytest.mark.parametrize("launcher", ["deepspeed", "nanotron", "maxtext"])
def test_a_launcher_without_uneven_stages_refuses_them_by_their_layers(launcher: str) -> None:
    """The field is the number of layers of a stage."""
    assert "layers" in fields(uneven(), launcher)


def test_zero_3_with_a_pipeline_is_refused_where_it_is_not_known() -> None:
    """DeepSpeed and nanotron name the ZeRO stage; torchtitan has it."""
    document = alike(zero_stage=3, reshard_after_forward=True)
    assert "zero_stage" in fields(document, "deepspeed")
    assert "zero_stage" in fields(document, "nanotron")
    assert exported(document, "torchtitan").launcher == "torchtitan"


@pytest.mark.parametrize("launcher", ["torchtitan", "deepspeed", "automodel", "nanotron", "maxtext", "accelerate"])
def test_a_fraction_is_refused_where_offload_is_on_or_off(launcher: str) -> None:
    """Half of the optimizer's states on the host: the field is the offload. Megatron has a fraction."""
    document = alike(offload=Offload(optimizer=0.5))
    assert "offload" in fields(document, launcher)
    assert "--optimizer-offload-fraction 0.5\n" in exported(document, "megatron").main


@NAMES
def test_a_plan_that_no_launcher_can_run_is_refused_before_any_launcher_sees_it(launcher: str) -> None:
    """For every rule of kind legal that a document can break: it names the rule."""
    broken = alike().replaced(model=sample_document().model.replaced(heads=62, kv_heads=62))
    with pytest.raises(RequestError, match="tp-divides-heads"):
        exported(broken, launcher)


@NAMES
def test_an_unknown_launcher_is_a_wrong_request(launcher: str) -> None:
    """With the nearest name."""
    with pytest.raises(RequestError, match=f"did you mean '{launcher}'"):
        exported(sample_document(), launcher + "x")


@NAMES
def test_an_export_says_what_it_is_for_and_starts_every_rank(launcher: str, tmp_path: Path) -> None:
    """Versions, a script that the shell can read and Python that compiles, for plans of a few jobs."""
    for number, configuration in enumerate(configurations(launcher, 3)):
        bundle = exported(configuration, launcher)
        assert bundle.versions == next(rule.versions for rule in RULES if rule.launcher == launcher)
        paths = written(bundle, tmp_path / str(number))
        assert {path.name for path in paths} == set(bundle.files)
        assert os.access(tmp_path / str(number) / LAUNCH_FILE, os.X_OK)
        subprocess.run(["sh", "-n", LAUNCH_FILE], cwd=tmp_path / str(number), check=True)
        for name, text in bundle.files.items():
            if name.endswith(".py"):
                ast.parse(text)
        assert all(f"export {name}=" in bundle.files[LAUNCH_FILE] for name in bundle.env)
        assert files_in(tmp_path / str(number)) == dict(bundle.files)


@pytest.mark.slow
def test_the_last_node_may_be_filled_in_part() -> None:
    """12 GPUs on nodes of 8: two nodes, of which the second starts four ranks."""
    drawn = next(
        each for each in configurations("megatron", 60) if each.parallelism.gpus_used == 12 and each.cluster.gpus == 12
    )
    script = exported(drawn, "megatron").files[LAUNCH_FILE]
    assert "--nnodes 2" in script
    assert "ranks=8\n" in script
    assert "-lt 1 ] || ranks=4" in script


def test_uneven_stages_are_a_layout_in_megatron_and_lists_of_modules_in_torchtitan() -> None:
    """The layers of every stage, embedding and head in their places."""
    assert "--pipeline-model-parallel-layout Et*19|t*20|t*21|t*20L\n" in exported(uneven(), "megatron").main
    overrides = exported(uneven(), "bridge").main
    assert "model.pipeline_model_parallel_layout='Et*19|t*20|t*21|t*20L'\n" in overrides
    sharded = uneven().replaced(
        stages=tuple(stage.replaced(zero_stage=3, reshard_after_forward=True) for stage in uneven().stages)
    )
    recipe = exported(sharded, "torchtitan").main
    assert "['tok_embeddings', 'layers.0'" in recipe
    assert "'layers.79', 'norm', 'lm_head']" in recipe


def test_a_layout_that_somebody_wrote_by_hand_is_read() -> None:
    """Repeats of groups, commas and blanks."""
    files = dict(exported(uneven(), "megatron").files)
    files["parallel.args"] = files["parallel.args"].replace("Et*19|t*20|t*21|t*20L", '"E t*20, |(t*20|)*2 t*20 L"')
    assert [stage.layers for stage in imported(files).stages] == [20, 20, 20, 20]


def test_a_change_in_the_launchers_own_file_is_a_change_of_the_plan() -> None:
    """Nothing but the job is read from job.json: another micro-batch size in the arguments is another plan."""
    files = dict(exported(alike(), "megatron").files)
    files["parallel.args"] = files["parallel.args"].replace("--micro-batch-size 1", "--micro-batch-size 2")
    layout = imported(files).parallelism
    assert (layout.micro_batch_size, layout.num_microbatches) == (2, 16)


def test_connections_to_the_device_are_set_as_megatron_checks_them() -> None:
    """One with tensor parallelism; not one where weights or gradients are sharded."""
    assert exported(alike(), "megatron").env == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}
    sharded = exported(alike(zero_stage=3, reshard_after_forward=True), "megatron")
    assert sharded.env == {"CUDA_DEVICE_MAX_CONNECTIONS": "8"}
    assert "--data-parallel-sharding-strategy optim_grads_params\n" in sharded.main


def test_the_runtime_gets_the_plan_itself() -> None:
    """Any plan, as its document; and gives its choices back."""
    document = sample_document()
    bundle = exported(document, RUNTIME)
    assert imported(bundle.files) == document.configuration
    with pytest.raises(RequestError, match="comes without predictions"):
        exported(document.configuration, RUNTIME)


@NAMES
def test_files_that_are_missing_or_broken_are_told_by_name(launcher: str) -> None:
    """Each file left out or cut in the middle: an error of ours, or it was not needed for the plan."""
    configuration = next(configurations(launcher, 1))
    files = dict(exported(configuration, launcher).files)
    for name in files:
        without = {other: text for other, text in files.items() if other != name}
        cut = {**files, name: files[name][: len(files[name]) // 2]}
        for damaged in (without, cut, {**files, name: "[1, 2"}):
            with contextlib.suppress(LauncherFileError):
                imported(damaged)
    with pytest.raises(LauncherFileError, match=next(iter(files))):
        imported({JOB_FILE: files[JOB_FILE]})


def test_a_job_of_an_unknown_launcher_is_refused() -> None:
    """And one with fields that there are not."""
    files = dict(exported(alike(), "megatron").files)
    job = json.loads(files[JOB_FILE])
    for changes, message in (({"launcher": "other"}, "must be one of"), ({"new": 1}, "unknown field 'new'")):
        with pytest.raises(LauncherFileError, match=message):
            imported({**files, JOB_FILE: json.dumps({**job, **changes})})


def test_a_write_that_fails_leaves_no_half_export(tmp_path: Path) -> None:
    """A folder where a file should be: the error names it, and job.json, which makes it an export, is not there."""
    bundle = exported(alike(), "megatron")
    (tmp_path / LAUNCH_FILE).mkdir()
    with pytest.raises(PlannerError, match=LAUNCH_FILE):
        written(bundle, tmp_path)
    with pytest.raises(PlannerError, match="is no export"):
        files_in(tmp_path)
    assert not list(tmp_path.glob(".*"))

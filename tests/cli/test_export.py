"""`plan export` and `plan port`: files, exit codes, JSON, and what the closest plan costs."""

import json
from pathlib import Path

import pytest

from cli.main import run
from planner.document import Offload, PlanDocument, dumps
from planner.export import EXPORTERS, files_in, imported
from tests.planner.export.test_exporters import alike, uneven, zb_v

PLAN = "tests/golden/llama3-8b_8.json"


@pytest.fixture
def megatron_plan(tmp_path: Path) -> str:
    """A file with a plan that Megatron has."""
    path = tmp_path / "plan.json"
    path.write_text(dumps(alike()), encoding="utf-8")
    return str(path)


def test_a_folder_gets_every_file_and_a_file_the_main_one(megatron_plan: str, tmp_path: Path, capsys) -> None:
    """What -o names decides; paths are printed, how to launch is told."""
    assert run(["export", megatron_plan, "--to", "megatron", "-o", str(tmp_path / "out")]) == 0
    told = capsys.readouterr()
    assert str(tmp_path / "out" / "launch.sh") in told.out
    assert "megatron-core 0.19" in told.err
    assert imported(files_in(tmp_path / "out")) == alike().configuration
    assert run(["export", megatron_plan, "--to", "megatron", "-o", str(tmp_path / "one.args")]) == 0
    assert (tmp_path / "one.args").read_text() == (tmp_path / "out" / "parallel.args").read_text()


def test_without_a_place_the_files_are_printed(megatron_plan: str, capsys) -> None:
    """Each under its name; as JSON the same."""
    assert run(["export", megatron_plan, "--to", "megatron"]) == 0
    text = capsys.readouterr().out
    assert "# parallel.args\n--tensor-model-parallel-size 4\n" in text
    assert run(["export", megatron_plan, "--to", "megatron", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["launcher"] == "megatron"
    assert record["files"]["parallel.args"] in text
    assert record["env"] == {"CUDA_DEVICE_MAX_CONNECTIONS": "1"}


def test_what_cannot_be_expressed_is_exit_3_with_the_fields(tmp_path: Path, capsys) -> None:
    """As text and as JSON; nothing is written."""
    path = tmp_path / "zb.json"
    path.write_text(dumps(zb_v()), encoding="utf-8")
    out = str(tmp_path / "out")
    assert run(["export", str(path), "--to", "megatron", "-o", out]) == 3
    assert "schedule must be 1f1b or interleaved, got zb-v" in capsys.readouterr().err
    assert run(["export", str(path), "--to", "megatron", "-o", out, "--json"]) == 3
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["kind"], error["exit_code"], error["launcher"]) == ("inexpressible", 3, "megatron")
    assert "schedule" in error["fields"]
    assert {each["rule"] for each in error["refusals"]} >= {"megatron-runs-schedule"}
    assert not Path(out).exists()


SHARDED = {"zero_stage": 3, "reshard_after_forward": True}
NO_PIPELINES = dict.fromkeys(("accelerate", "trainer", "axolotl"), "pp")
# By what a plan has: the plan, and of every launcher that lacks it the field that its export is refused for.
LACKING: dict[str, tuple[PlanDocument, dict[str, str]]] = {
    "ZB-V": (
        zb_v(),
        NO_PIPELINES | dict.fromkeys(("megatron", "bridge", "deepspeed", "nanotron", "maxtext"), "schedule"),
    ),
    "uneven stages": (uneven(), NO_PIPELINES | dict.fromkeys(("deepspeed", "nanotron", "maxtext"), "layers")),
    "ZeRO-3 with a pipeline": (
        alike(**SHARDED),
        NO_PIPELINES | dict.fromkeys(("deepspeed", "nanotron"), "zero_stage"),
    ),
    "a fraction": (
        alike(offload=Offload(optimizer=0.5)),
        dict.fromkeys(set(EXPORTERS) - {"megatron", "bridge"}, "offload"),
    ),
}


@pytest.mark.parametrize("launcher", [*EXPORTERS, "runtime"])
@pytest.mark.parametrize("what", LACKING)
def test_what_a_launcher_lacks_is_exit_3_with_the_field(what: str, launcher: str, tmp_path: Path, capsys) -> None:
    """Each launcher with each: the field is told where it lacks it, and no such field where it has it."""
    document, field = LACKING[what]
    path = tmp_path / "plan.json"
    path.write_text(dumps(document), encoding="utf-8")
    code = run(["export", str(path), "--to", launcher, "--json"])
    record = json.loads(capsys.readouterr().out)
    if launcher in field:
        assert code == record["error"]["exit_code"] == 3
        assert field[launcher] in record["error"]["fields"]
    else:
        told = record["error"]["fields"] if code == 3 else []
        assert code in (0, 3)
        assert not set(told) & set(field.values())


@pytest.mark.parametrize(
    ("what", "launchers"),
    [
        ("ZB-V", ("torchtitan", "automodel")),
        ("uneven stages", ("megatron", "bridge", "torchtitan", "automodel")),
        ("ZeRO-3 with a pipeline", ("megatron", "bridge", "torchtitan", "automodel")),
        ("a fraction", ("megatron", "bridge")),
    ],
)
def test_what_a_launcher_has_is_exported(what: str, launchers: tuple[str, ...], tmp_path: Path, capsys) -> None:
    """The other side: with states sharded as these launchers shard them the same plans are theirs."""
    document = LACKING[what][0]
    if what != "a fraction":
        document = document.replaced(stages=tuple(stage.replaced(**SHARDED) for stage in document.stages))
    path = tmp_path / "plan.json"
    path.write_text(dumps(document), encoding="utf-8")
    for launcher in launchers:
        assert run(["export", str(path), "--to", launcher, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["launcher"] == launcher


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["export", PLAN, "--to", "nobody"], 2),
        (["export", PLAN], 2),
        (["export", "no.json", "--to", "megatron"], 2),
        (["port", "tests", "--to", "megatron"], 2),
    ],
)
def test_wrong_input_is_exit_2(arguments: list[str], code: int, capsys) -> None:
    """A message, never a traceback; JSON parses."""
    assert run(arguments) == code
    assert "Traceback" not in capsys.readouterr().err
    assert run([*arguments, "--json"]) == code
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == code


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["deepspeed", "accelerate", "torchtitan", "nanotron", "maxtext"])
def test_the_closest_plan_is_exported_with_its_cost(launcher: str, tmp_path: Path, capsys) -> None:
    """The launcher has it, it fits, and the price is that of its own prediction."""
    out = str(tmp_path / "out")
    plan = "tests/golden/llama3-70b_256.json"
    assert run(["export", plan, "--to", launcher, "--nearest", "-o", out, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    found = record["nearest"]
    assert found["changes"]
    assert found["slower_by"] == pytest.approx(found["step_time_s"] / found["plan_step_time_s"] - 1)
    assert found["slower_by"] > -0.005
    there = imported(files_in(out))
    assert there.model.name == "llama3-70b"
    changed = {each["field"] for each in found["changes"]}
    kept = json.loads(Path(plan).read_text())["parallelism"]
    assert all(getattr(there.parallelism, name) == value for name, value in kept.items() if name not in changed)


def test_an_export_to_one_launcher_becomes_one_to_another(megatron_plan: str, tmp_path: Path, capsys) -> None:
    """From Megatron to Bridge; to nanotron it is exit 3 with the fields."""
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    assert run(["export", megatron_plan, "--to", "megatron", "-o", first]) == 0
    assert run(["port", first, "--to", "bridge", "-o", second]) == 0
    assert imported(files_in(second)) == imported(files_in(first))
    assert run(["port", first, "--to", "nanotron"]) == 3
    assert "schedule" in capsys.readouterr().err

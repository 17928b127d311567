"""What we write for Megatron and Bridge is what megatron-core's wheel takes, by the table distilled from it."""

import pytest

from planner.document import Configuration
from planner.errors import LauncherFileError
from planner.export import exported, imported
from planner.export.arguments import parsed
from planner.export.known import argument_faults, known
from tests.planner.export.configurations import configurations
from tests.planner.export.test_exporters import alike

# Fields that Bridge's own providers and recipes add to megatron-core's dataclasses.
OF_BRIDGE = {"model.seq_length", "dataset.seq_length", "mixed_precision"}
SOME = 33


def check_arguments(plan: Configuration) -> None:
    """Fails where an argument is not Megatron's, has another number of values, another type or choice."""
    files = exported(plan, "megatron").files
    for name in ("parallel.args", "model.args"):
        assert argument_faults(parsed(files[name])) == (), name


def check_fields(plan: Configuration) -> None:
    """Fails where an override is of no field of the section's dataclass, or no choice of it."""
    for line in exported(plan, "bridge").main.splitlines():
        place, _, value = line.partition("=")
        if place not in OF_BRIDGE:
            section, _, name = place.partition(".")
            choices = known()[section][name].get("choices")
            assert not choices or value.strip("'") in choices, place


def test_arguments_of_random_plans_are_megatrons() -> None:
    """Names, numbers of values, types and choices, of a few plans of every job."""
    for plan in configurations("megatron", SOME, seed=5):
        check_arguments(plan)


def test_overrides_of_random_plans_are_fields_that_megatron_core_has() -> None:
    """All but what Bridge adds itself."""
    for plan in configurations("bridge", SOME, seed=5):
        check_fields(plan)


@pytest.mark.slow
def test_two_hundred_random_plans_are_written_in_what_the_wheel_has() -> None:
    """As many as the launchers' own parsers are told."""
    for plan in configurations("megatron", 200, seed=3):
        check_arguments(plan)
    for plan in configurations("bridge", 200, seed=3):
        check_fields(plan)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("--micro-batchsize 2", "megatron-core 0.19.2 has no argument --micro-batchsize; did you mean '--micro-batch"),
        ("--recompute-method blocks", "--recompute-method must be one of uniform, block, got 'blocks'"),
        ("--bf16 true", "--bf16 takes no value, got true"),
        ("--micro-batch-size 1 2", "--micro-batch-size takes one value, got 1 2"),
        ("--micro-batch-size one", "--micro-batch-size must be a whole number, got 'one'"),
        ("--optimizer-offload-fraction half", "--optimizer-offload-fraction must be a number, got 'half'"),
        ("--recompute-modules", "--recompute-modules takes a value or several, got none"),
    ],
)
def test_what_megatron_does_not_take_is_no_plan(line: str, fault: str) -> None:
    """A file that somebody wrote wrong is refused by name, and not read as if the line were not there."""
    files = dict(exported(alike(), "megatron").files)
    name = line.split()[0]
    kept = [each for each in files["parallel.args"].splitlines() if each.split()[0] != name]
    files["parallel.args"] = "\n".join((*kept, line))
    with pytest.raises(LauncherFileError) as refused:
        imported(files)
    assert fault in str(refused.value)


def test_the_table_says_what_it_is_of() -> None:
    """Its source, version and licence, and the arguments that no dataclass has beside those that have one."""
    table = known()
    assert table["version"] == "0.19.2"
    assert "wheel" in table["source"]
    assert table["licence"].startswith("Apache-2.0")
    assert table["arguments"]["--use-megatron-fsdp"] == {"values": 0}
    assert table["arguments"]["--recompute-modules"] == {"values": "+", "type": "str"}
    assert len(table["arguments"]) > 800

"""What a shell completes: names of the catalog and of launchers, as they stand on the command line."""

import os
import subprocess
import sys

import pytest

from cli.completion import catalog_names, launchers, searched
from cost_models.specs.catalog import names
from planner.flag_values import SEARCHABLE, TARGETS
from tests.test_floors import HEAVY, ROOT, closure, within


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("plan --model mixtral", ["mixtral-8x22b", "mixtral-8x7b"]),
        ("plan --gpu h200", ["h200"]),
        ("plan --cluster llama3", ["llama3-roce"]),
        ("plan --target m", ["maxtext", "megatron"]),
        ("plan check tp=2 --recipe nano", ["nanotron"]),
        ("plan export plan.json --to t", ["torchtitan", "trainer"]),
        ("plan --search precision,o", ["precision,offload", "precision,optimizer"]),
    ],
)
def test_the_last_word_is_completed(words: str, expected: list[str]) -> None:
    """As bash asks for it."""
    asked = {"_PLAN_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
    command = [sys.executable, "-c", "from cli.main import app; app(prog_name='plan')"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True, check=False)
    assert sorted(done.stdout.split()) == expected


def test_every_name_is_completed() -> None:
    """All models, targets and parts; a part that is there already is not offered again."""
    assert catalog_names("models")("") == names("models")
    assert launchers("") == sorted(TARGETS)
    assert searched("") == sorted(SEARCHABLE)
    assert searched("offload,") == [f"offload,{name}" for name in sorted(SEARCHABLE) if name != "offload"]


def test_completion_loads_nothing_heavy() -> None:
    """A key press waits for typer alone: no pydantic, no numpy."""
    for module in ("cost_models/specs/data.py", "planner/flag_values.py", "cli/completion.py"):
        loaded = closure(ROOT / module)
        assert not {name for name in loaded if within(name, (*HEAVY, "pydantic", "numpy"))}

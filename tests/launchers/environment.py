"""Where launchers' own parsers run, and what they say to exports."""

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from planner.document import Configuration
from planner.export import Bundle

PARSERS = Path(__file__).parent / "parsers"
VARIABLE = "MESHPLAN_LAUNCHERS"
# What the parser of a launcher imports first.
PACKAGES = {
    "megatron": "megatron.training",
    "bridge": "megatron.training",
    "transformer_config": "megatron.core.transformer",
    "torchtitan": "torchtitan.config",
    "deepspeed": "deepspeed.runtime.config",
    "accelerate": "accelerate",
    "trainer": "transformers",
    "automodel": "nemo_automodel.recipes._dist_utils",
    "nanotron": "nanotron",
    "axolotl": "axolotl.utils.schemas.config",
    "maxtext": "maxtext",
}


# Wheels for newer Pythons that are unpacked beside the environment, and what is read of them.
UNPACKED = {"megatron": "megatron", "megatron_arguments": "megatron", "bridge": "megatron", "maxtext": "maxtext"}
WHEELS = {"megatron": "megatron/training", "maxtext": "maxtext"}


@dataclass(frozen=True)
class Answer:
    """What a parser said: what it found in the files, or why it refused them."""

    accepted: bool
    found: dict[str, Any]
    error: str


def folder() -> Path:
    """The folder that scripts/install_launchers.py filled; skips where there is none."""
    named = os.environ.get(VARIABLE)
    if not named:
        pytest.skip(f"{VARIABLE} does not name a folder made by scripts/install_launchers.py")
    return Path(named)


def told(parser: str, bundles: Sequence[tuple[Bundle, Configuration]]) -> list[Answer]:
    """What a parser says to exports of plans, or to nothing; skips where its package is not installed."""
    requested(parser)
    lines = [
        json.dumps({"files": dict(bundle.files), "env": dict(bundle.env), "world": plan.parallelism.gpus_used})
        for bundle, plan in bundles
    ] or ["{}"]
    command = [str(_python()), str(PARSERS), parser]
    done = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True, env=_environment(parser))
    assert done.returncode == 0, done.stderr[-2000:]
    records = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"accepted"')]
    assert len(records) == len(lines), done.stderr[-2000:]
    return [Answer(each["accepted"], each.get("found", {}), each.get("error", "")) for each in records]


def _python() -> Path:
    return folder() / "environment" / "bin" / "python"


def _environment(parser: str) -> dict[str, str]:
    """The variables of the process without this project's path; an unpacked wheel before what is installed."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONPATH": str(folder() / UNPACKED[parser])} if parser in UNPACKED else kept


@cache
def _missing(parser: str) -> str:
    """Why the package of a parser cannot be imported, empty where it can."""
    if parser in UNPACKED:
        package = folder() / UNPACKED[parser] / WHEELS[UNPACKED[parser]]
        return "" if package.is_dir() else f"its wheel is not in {folder()}"
    code = f"import importlib; importlib.import_module({PACKAGES[parser]!r})"
    done = subprocess.run([str(_python()), "-c", code], capture_output=True, text=True, env=_environment(parser))
    return "" if done.returncode == 0 else done.stderr.strip().splitlines()[-1]


def requested(parser: str) -> None:
    """None; skips where there is no environment for a parser."""
    if not _python().exists():
        pytest.skip(f"there is no environment in {folder()}")
    if reason := _missing(parser):
        pytest.skip(f"{parser}: {reason}")

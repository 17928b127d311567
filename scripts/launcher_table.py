"""`python scripts/launcher_table.py`: writes docs/launchers.md, what every launcher can express, from the rules."""

from collections.abc import Iterator
from pathlib import Path

from planner.rules import LAUNCHERS, RULES, Rule

PAGE = Path(__file__).resolve().parents[1] / "docs" / "launchers.md"
HEAD = """\
# What launchers can express

Generated from the rules by `python scripts/launcher_table.py`; a test keeps it current. `plan export PLAN --to NAME`
writes a plan in a launcher's own form or, with exit code 3, the fields that stop it; `--nearest` exports the closest
plan that the launcher has and tells what that costs; `plan port DIR --to NAME` turns one launcher's export into
another's. This project's own runtime executes every plan.

## How exports are checked

`python scripts/install_launchers.py FOLDER` makes an environment of launchers' own parsers, without a GPU, and
`MESHPLAN_LAUNCHERS=FOLDER python -m pytest -m launchers tests/launchers` tells each of them 200 random legal plans, of
which it must accept all, and plans that break one legal rule each, which we must refuse. It runs: the argument parser
and validator of Megatron-LM and the dataclasses of Megatron Bridge's container (megatron-core 0.19.2),
`TransformerConfig` of megatron-core 0.16.1, torchtitan's recipes and flags, `DeepSpeedConfig`, accelerate's
configuration and plugins, `TrainingArguments`, AutoModel's distributed section, Axolotl's schema. Three are judged in
part: of Bridge itself nothing runs without Transformer Engine, the newest nanotron in the package index lacks two of
our keys (`context_parallel_size`, `recompute_layer`), and of MaxText base.yml is read for keys and types.
Everywhere, without any launcher, the arguments are compared with `data/launchers/megatron.json`, which
`scripts/distil_megatron.py` reads off megatron-core's wheel.

## What each launcher has

An empty cell is no restriction; `x` marks a rule, which the last part words. `plan rules ID` explains one.
"""


def page() -> str:
    """The whole page."""
    return "\n".join((HEAD, *_table(), "", *_words())) + "\n"


def _express(launcher: str) -> list[Rule]:
    return [rule for rule in RULES if rule.kind == "express" and rule.launcher == launcher]


def _table() -> Iterator[str]:
    """A row a field, a column a launcher: the number of rules that restrict it."""
    names = [launcher.name for launcher in LAUNCHERS]
    fields = list(dict.fromkeys(rule.field for rule in RULES if rule.kind == "express"))
    yield f"| field | {' | '.join(names)} |"
    yield f"| --- |{' --- |' * len(names)}"
    for field in fields:
        marks = (" ".join("x" for rule in _express(name) if rule.field == field) for name in names)
        yield f"| `{field}` | {' | '.join(marks)} |"


def _words() -> Iterator[str]:
    """Of every launcher its versions and rules."""
    for launcher in LAUNCHERS:
        yield f"## {launcher.name}\n\n{launcher.versions}.\n"
        yield "| rule | field | what must hold | why |\n| --- | --- | --- | --- |"
        for rule in _express(launcher.name):
            yield f"| `{rule.id}` | `{rule.field}` | {rule.what} | {rule.why} |"
        yield ""


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

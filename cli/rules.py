"""`plan rules [ID] [--launcher NAME]`: what plans must obey, and why."""

from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from cli.output import console, print_json, print_rendered
from cost_models.specs.errors import did_you_mean
from planner.errors import RequestError
from planner.flag_values import TARGETS
from planner.rules import RULES, Rule

LEGAL = "any"


def rules(name: str | None, *, launcher: str | None, as_json: bool) -> int:
    """Prints one rule in full or a table of rules, all or those of one launcher; the exit code.

    Raises RequestError for a rule or a launcher that there is not.
    """
    chosen = _of_launcher(launcher) if name is None else [_named(name, launcher)]
    if as_json:
        print_json({"rules": [_as_data(rule) for rule in chosen]})
        return 0
    terminal = console()
    print_rendered(_table(chosen) if name is None else _in_full(chosen[0]), terminal)
    return 0


def _of_launcher(launcher: str | None) -> list[Rule]:
    if launcher is not None and launcher not in TARGETS:
        message = f"--launcher must be one of {', '.join(TARGETS)}, got {launcher!r}{did_you_mean(launcher, TARGETS)}"
        raise RequestError(message)
    return [rule for rule in RULES if launcher in (None, rule.launcher)]


def _named(name: str, launcher: str | None) -> Rule:
    known = {rule.id: rule for rule in _of_launcher(launcher)}
    if name not in known:
        of = f" of {launcher}" if launcher else ""
        message = f"there is no rule{of} {name!r}{did_you_mean(name, tuple(known))}; `plan rules` lists them"
        raise RequestError(message)
    return known[name]


def _as_data(rule: Rule) -> dict[str, Any]:
    fields = ("id", "kind", "launcher", "versions", "field", "what", "why")
    example = {"values": dict(rule.example), "message": rule.message(rule.example)}
    return {name: getattr(rule, name) for name in fields} | {"example": example}


def _table(chosen: list[Rule]) -> RenderableType:
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    for heading in ("rule", "field", "what"):
        table.add_column(heading, no_wrap=heading == "rule")
    for rule in chosen:
        table.add_row(rule.id, rule.field, rule.what)
    return table


def _in_full(rule: Rule) -> RenderableType:
    holds_for = "every plan" if rule.launcher == LEGAL else f"{rule.launcher} ({rule.versions})"
    rows = Table.grid(padding=(0, 2), pad_edge=False)
    rows.add_column(style="dim", no_wrap=True)
    rows.add_column()
    values = ", ".join(f"{name} {value}" for name, value in rule.example.items() if value or len(rule.example) < 8)
    for heading, text in (
        ("holds for", holds_for),
        ("field", rule.field),
        ("what", rule.what),
        ("why", rule.why),
        ("example", values),
        ("", rule.message(rule.example)),
    ):
        rows.add_row(heading, text)
    return Group(Text(rule.id, style="bold"), Padding(rows, (0, 0, 0, 2), expand=False))

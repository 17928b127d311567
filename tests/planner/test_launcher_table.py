"""docs/launchers.md is what the rules say."""

import runpy
from pathlib import Path

from planner.rules import LAUNCHERS, RULES

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "launcher_table.py"


def test_the_table_of_launchers_is_current() -> None:
    """Run scripts/launcher_table.py when this fails. Every rule of a launcher is on the page."""
    script = runpy.run_path(str(SCRIPT))
    text = script["PAGE"].read_text(encoding="utf-8")
    assert text == script["page"]()
    assert all(f"`{rule.id}`" in text for rule in RULES if rule.kind == "express")
    assert all(f"## {launcher.name}\n" in text for launcher in LAUNCHERS)

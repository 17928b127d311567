"""The README shows what the tool prints."""

import io
from pathlib import Path

from rich.console import Console

from planner.document import read
from planner.report.terminal import report

ROOT = Path(__file__).parents[2]
WIDTH = 100


def test_the_sample_is_the_report_of_the_golden_plan() -> None:
    """The sample report is that of tests/golden/llama3-70b_256.json at 100 columns, without its assumptions."""
    text = io.StringIO()
    console = Console(file=text, width=WIDTH, highlight=False, markup=False, emoji=False)
    console.print(report(read(ROOT / "tests/golden/llama3-70b_256.json"), WIDTH))
    printed = "\n".join(line.rstrip() for line in text.getvalue().split("\nAssumed")[0].splitlines()).strip()
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    sample = readme.split("```text\n", 1)[1].split("```", 1)[0].strip()
    assert sample == printed

"""Distil what users reported of runs that were refused or did not fit: who, what was asked, and the right answer.

    python scripts/distil_cases.py CASES_FOLDER [-o tests/planner/user_cases.json]

The folder holds cases.jsonl and complaints.csv. Kept are the cases of configurations that cannot be, of memory that
lacks and of what would fit instead, as the facts that the tests rest on.
"""

import argparse
import csv
import json
from pathlib import Path
from typing import Any

LICENCE = "facts from public issue trackers, in words of our own"
KINDS = ("1-oom", "4-invalid-config", "6-what-if", "7-topology")
FACTS = (
    "verdict",
    "rule",
    "min_gpus",
    "fits_with",
    "fix",
    "nearest",
    "padded",
    "floor_gpus_at_72GB_usable",
    "practical",
    "answer",
    "efficiency",
    "ordering",
    "check",
)
# Complaints about memory that lacks or degrees that cannot be; the others are about seconds and are scored elsewhere.
COMPLAINTS = ("mll11b", "ml783", "tt1789a", "tt1789b", "tt620", "mbnano1", "mbnano2", "sp14838")


def cases_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The facts of every case of some kinds, by id."""
    found = {}
    for line in (folder / "cases.jsonl").read_text(encoding="utf-8").splitlines():
        case = json.loads(line)
        if case["kind"] in KINDS:
            answer = {name: case["right_answer"][name] for name in FACTS if name in case["right_answer"]}
            found[case["id"]] = {"kind": case["kind"], "source": case["source"], "answer": answer}
    return found


def complaints_of(folder: Path) -> dict[str, dict[str, Any]]:
    """The facts of some complaints, by id."""
    with (folder / "complaints.csv").open(newline="", encoding="utf-8") as file:
        rows = {row["id"]: row for row in csv.DictReader(file)}
    return {
        name: {
            "kind": "complaint",
            "source": rows[name]["source"],
            "answer": {"observed": rows[name]["observed"], "check": rows[name]["expected_check"]},
        }
        for name in COMPLAINTS
    }


def main() -> None:
    """Write the file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("tests/planner/user_cases.json"))
    arguments = parser.parse_args()
    facts = {"licence": LICENCE, "cases": cases_of(arguments.folder) | complaints_of(arguments.folder)}
    arguments.output.write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()

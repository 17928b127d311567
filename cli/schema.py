"""`plan schema`: the JSON Schema of the plan document."""

from cli.output import print_json
from planner.document import json_schema


def schema() -> int:
    """Prints the schema, which is JSON with and without --json; the exit code."""
    print_json(json_schema())
    return 0

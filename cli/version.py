"""`plan --version`."""

from importlib.metadata import version

from cli.output import print_json, print_text


def print_version(*, as_json: bool) -> int:
    """Prints the version of the tool; the exit code."""
    number = version("meshplan")
    if as_json:
        print_json({"version": number})
    else:
        print_text(f"plan {number}\n")
    return 0

"""`plan profile show`, `diff` and `merge`: what measured profiles say, how they differ, one of several."""

from collections.abc import Sequence
from dataclasses import asdict

from cli.output import console, print_json, print_rendered, print_text
from cost_models.profile_difference import difference
from cost_models.profile_merge import merged
from cost_models.specs.catalog import digest
from cost_models.specs.measured_profile import check_writable, read, write
from planner.document import check_writable as check_drawing
from planner.document import write_text
from planner.report.profile import difference_report, merge_report, profile_report

__all__ = ["diff", "merge", "show"]


def show(file: str, *, svg_file: str | None, as_json: bool) -> int:
    """Prints what a profile says and draws its tables; the exit code. Raises SpecError or DocumentError."""
    if svg_file is not None:
        check_drawing(svg_file)
    measured = read(file)
    if svg_file is not None:
        from planner.report.profile_drawing import svg

        write_text(svg(measured), svg_file)
    if as_json:
        print_json({"digest": digest(measured.profile), "profile": measured.model_dump(mode="json")})
    else:
        print_rendered(profile_report(measured), console())
    return 0


def diff(first: str, second: str, *, most: int, as_json: bool) -> int:
    """Prints how a second profile differs from a first; the exit code. Raises SpecError."""
    before, after = read(first), read(second)
    found = difference(before, after, most)
    if as_json:
        print_json(asdict(found))
    else:
        print_rendered(difference_report(found, before, after), console())
    return 0


def merge(files: Sequence[str], *, output: str, as_json: bool) -> int:
    """Writes the median of several profiles and tells how far they lie apart; the exit code.

    Raises SpecError for profiles of devices that are not alike, and for files that cannot be read or written.
    """
    check_writable(output)
    found = merged([read(file) for file in files], files)
    write(found.measured, output)
    if as_json:
        spreads = [asdict(spread) for spread in found.spreads]
        print_json({"output": output, "name": found.measured.profile.name, "spreads": spreads})
    else:
        print_rendered(merge_report(found.spreads), console())
        print_text(f"{found.measured.profile.name}: {output}\n")
    return 0

"""`plan evaluate`: predictions for a table of runs, and how far they lie from what was measured."""

from dataclasses import asdict
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.table import Table

from cli.output import console, print_json, print_rendered, print_text
from planner.document import check_writable
from planner.evaluate.answers import answers, read_rows, write_answers
from planner.evaluate.statistics import Comparison, Errors, compare, errors, ranking, verdicts
from planner.given_profile import given


def evaluate(runs: str, *, out: str, profile: str | None, as_json: bool) -> int:
    """Predicts every row of a CSV file, writes the answers and prints the statistics; the exit code.

    Rows of the device of a measured profile are timed by it. Raises RequestError for a file that cannot be read or
    written, SpecError for a file that is no profile.
    """
    check_writable(out)
    measured = given(profile)
    rows = read_rows(runs)
    found = answers(rows, measured)
    write_answers(found, out)
    counts = {status: sum(answer.status == status for answer in found) for status in ("ok", "unsupported", "invalid")}
    compared = compare(rows, found)
    if as_json:
        print_json({"rows": len(rows), **counts, **_statistics(compared)})
        return 0
    print_text(f"{len(rows):,} rows: {', '.join(f'{count:,} {status}' for status, count in counts.items())}; {out}\n")
    _print_errors("step time", errors(compared, lambda one: one.time_error, lambda one: one.source))
    _print_errors("peak memory", errors(compared, lambda one: one.memory_error, lambda one: one.source))
    order = ranking(compared)
    if order is not None:
        print_text(
            f"ranking: {order.groups} scenarios, mean regret {order.mean_regret:.1%}, none in {order.zero_regret:.0%}, "
            f"largest {order.largest_regret:.1%}, rank correlation {order.correlation:.2f}\n"
        )
    said = verdicts(compared)
    if said.right + said.wrong + said.borderline:
        print_text(f"fits: {said.right} right, {said.wrong} wrong, {said.borderline} borderline\n")
    return 0


def _statistics(compared: list[Comparison]) -> dict[str, Any]:
    order = ranking(compared)
    return {
        "step_time": _as_dicts(errors(compared, lambda one: one.time_error, lambda one: one.source)),
        "peak_memory": _as_dicts(errors(compared, lambda one: one.memory_error, lambda one: one.source)),
        "ranking": asdict(order) if order else None,
        "fits": asdict(verdicts(compared)),
    }


def _as_dicts(by_group: dict[Any, Errors]) -> dict[str, Any]:
    return {str(name): asdict(group) for name, group in by_group.items()}


def _print_errors(title: str, by_group: dict[Any, Errors]) -> None:
    if not by_group:
        return
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column(title, no_wrap=True)
    for heading in ("rows", "mean", "median", "bias", "within 10 %"):
        table.add_column(heading, justify="right", no_wrap=True)
    for name, group in by_group.items():
        figures = (f"{group.mean:.1%}", f"{group.median:.1%}", f"{group.bias:+.1%}", f"{group.within:.0%}")
        table.add_row(str(name), f"{group.count:,}", *figures)
    print_rendered(table, console())

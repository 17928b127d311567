"""Numbers for a message."""

from collections.abc import Iterable

__all__ = ["in_runs"]


def in_runs(numbers: Iterable[int]) -> str:
    """Numbers in order, those in a row by their ends: `0-3, 8`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("-".join(map(str, run)) for run in runs)

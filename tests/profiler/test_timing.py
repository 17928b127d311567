"""Medians of what was not disturbed."""

import pytest

pytest.importorskip("torch")

from profiler.timing import Sample, clock_of, summary, timed


def test_samples_that_waited_for_the_processor_do_not_count() -> None:
    """Five quiet samples are enough: the median is theirs, the others are counted as interrupted."""
    quiet = [Sample(1.0 + step / 100) for step in range(5)]
    found = summary([*quiet, *[Sample(3.0, waited_s=2.0)] * 20])
    assert found.median_s == pytest.approx(1.02)
    assert (found.repetitions, found.interrupted, found.outliers) == (5, 20, 0)


def test_without_quiet_samples_the_wait_is_taken_off() -> None:
    """A machine that is never free: what is left of each sample counts."""
    found = summary([Sample(1.0 + wait, waited_s=wait) for wait in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)])
    assert found.median_s == pytest.approx(1.0)
    together = summary(
        [Sample(1.0 + wait, waited_s=wait) for wait in (0.5, 1.0, 1.5, 2.0, 2.5, 3.0)], waits_overlap=True
    )
    assert together.median_s == pytest.approx(2.5)


def test_far_samples_are_left_out() -> None:
    """One sample ten times as long is an outlier, not part of the spread."""
    found = summary([*(Sample(1.0 + step / 1000) for step in range(20)), Sample(10.0)])
    assert (found.outliers, found.repetitions) == (1, 20)
    assert found.spread < 0.02


def test_repetitions_rotate_and_keep_their_limit() -> None:
    """Every repetition has the next number, and a limit of nothing still gives five samples."""
    import torch

    numbers: list[int] = []
    found = timed(clock_of(torch.device("cpu")), numbers.append, 0.0)
    assert numbers == list(range(len(numbers)))
    assert found.median_s > 0

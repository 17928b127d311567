"""Budgets, turns, and going on after an interruption, with a crew that answers at once."""

import time
from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("torch")

import torch

from profiler.errors import JournalError
from profiler.points import Measured, Point, dumps, loads
from profiler.session import Session

ABOUT = {"device": "any", "ranks": 2}
CANDIDATES = {
    "copy": [Point("copy", (2**power,)) for power in range(10, 26)],
    "product": [Point("product", (rows, 64, 64)) for rows in (16, 64, 256, 1024)],
}


class Ready:
    """Ranks that take some seconds to say that a point takes a nanosecond a byte."""

    ranks, device = 2, torch.device("cpu")

    def __init__(self, each_s: float = 0.0, fails_at: int = 10**9) -> None:
        self.asked: list[Point] = []
        self._each_s, self._fails_at = each_s, fails_at

    def measure(self, point: Point, limit_s: float) -> Measured:
        """A point."""
        if len(self.asked) == self._fails_at:
            raise KeyboardInterrupt
        self.asked.append(point)
        time.sleep(self._each_s)
        return Measured(point, 1e-9 * point.sizes[0], 0.01, 10)


def test_every_operator_has_its_turn_first() -> None:
    """A budget for two points reaches two operators."""
    crew = Ready(each_s=0.05)
    Session(crew, CANDIDATES, budget_s=0.08).run()
    assert {point.operator for point in crew.asked[:2]} == {"copy", "product"}


def test_a_budget_is_kept() -> None:
    """Points that take longer than all of it are not begun."""
    began = time.monotonic()
    Session(Ready(each_s=0.02), CANDIDATES, budget_s=0.2).run()
    assert time.monotonic() - began < 0.35


def test_an_interrupted_measurement_goes_on() -> None:
    """What was kept is not measured again, and both runs together have everything."""
    kept: list[str] = []

    def keep(measured: Sequence[Measured]) -> None:
        kept.append(dumps(measured, ABOUT))

    with pytest.raises(KeyboardInterrupt):
        Session(Ready(fails_at=5), CANDIDATES, budget_s=60.0, keep=keep).run()
    finished = loads(kept[-1], ABOUT, "journal")
    assert len(finished) == 5
    second = Ready()
    every = Session(second, CANDIDATES, budget_s=60.0, finished=finished, keep=keep).run()
    assert not {one.point for one in finished} & set(second.asked)
    assert {one.point for one in finished} <= {one.point for one in every}


def test_a_journal_of_another_run_is_refused() -> None:
    """The message names what differs and what to do."""
    text = dumps([Measured(Point("copy", (1,)), 1.0, 0.0, 5)], ABOUT)
    with pytest.raises(JournalError, match=r"another run \(it differs in ranks\).*remove it"):
        loads(text, {**ABOUT, "ranks": 4}, "journal")
    with pytest.raises(JournalError, match="does not hold measurements"):
        loads(text[:-20], ABOUT, "journal")


def test_a_slower_device_marks_what_is_measured_then() -> None:
    """The reference point takes longer than at its best: points after it are told of as throttled."""

    class Slowing(Ready):
        """Ranks whose device slows down half way."""

        def measure(self, point: Point, limit_s: float) -> Measured:
            found = super().measure(point, limit_s)
            return found if len(self.asked) < 4 else Measured(point, 2 * found.seconds, 0.01, 10)

    session = Session(Slowing(), CANDIDATES, budget_s=60.0, reference=CANDIDATES["product"][0])
    session.look_every_s = 0.0
    assert {one.throttled for one in session.run()} == {True, False}


def test_what_is_left_of_a_budget_measures_all_again() -> None:
    """Each point twice, and both times count; a point with few repetitions first."""

    class Slower(Ready):
        """Ranks that take three times as long the second time."""

        def measure(self, point: Point, limit_s: float) -> Measured:
            again = point in self.asked
            found = super().measure(point, limit_s)
            repetitions = 5 if point.operator == "product" else 10
            return replace(found, seconds=found.seconds * (3 if again else 1), repetitions=repetitions)

    crew = Slower()
    every = Session(crew, CANDIDATES, budget_s=60.0).run()
    assert len(crew.asked) == 2 * len(every)
    assert {point.operator for point in crew.asked[len(every) :][:4]} == {"product"}
    for one in every:
        assert one.seconds == pytest.approx(2e-9 * one.point.sizes[0])
        assert one.spread == pytest.approx(1.0)
        assert one.repetitions == (10 if one.point.operator == "product" else 20)


def test_a_slower_device_counts_only_where_nothing_else_does() -> None:
    """Of two measurements that of the device at its best stays."""
    best, slow = Measured(Point("copy", (1,)), 1.0, 0.1, 5), Measured(Point("copy", (1,)), 2.0, 0.1, 5, throttled=True)
    assert best.with_another(slow) == slow.with_another(best) == best
    assert slow.with_another(slow).throttled


def test_an_operator_is_told_by_another_where_it_is_unknown() -> None:
    """A pipeline of layers that take a second both ways is too much for a minute; of a millisecond it is not."""

    class Layers(Ready):
        """Ranks whose layers take so many seconds."""

        def __init__(self, seconds: float) -> None:
            super().__init__()
            self._seconds = seconds

        def measure(self, point: Point, limit_s: float) -> Measured:
            return replace(super().measure(point, limit_s), seconds=self._seconds)

    points = {name: [Point(name, (256,), (4,))] for name in ("layers_both_ways", "pipeline_1f1b")}
    for seconds, measured in ((1.0, {"layers_both_ways"}), (1e-3, set(points))):
        crew = Layers(seconds)
        Session(crew, points, budget_s=60.0).run()
        assert {point.operator for point in crew.asked} == measured

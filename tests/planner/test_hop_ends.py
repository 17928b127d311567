"""Ends of hops are found again from pipelines whose layers and hops are known."""

import pytest

from cost_models import schedules
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from planner.hop_ends import TimedPipelines, hop_ends

# Neighbours of each chunk on the other of two ranks: with a chunk a rank, and four.
ENDS = {"1f1b": [[1], [1]], "interleaved": [[1, 2, 2, 2], [2, 2, 2, 1]]}


def timed(tokens: int, *, slower: float, end_s: float, layer_s: float = 1e-4) -> TimedPipelines:
    """Pipelines of layers of so many seconds a token, slower than by themselves, in which an end takes so long."""
    forward_s, both_ways_s, hop_s = layer_s * tokens, 3.2 * layer_s * tokens, 2e-3
    steps = {}
    for schedule, ends in ENDS.items():
        chunks = len(ends[0])
        forward, backward = (
            [[slower * 4 / chunks * seconds + count * end_s for count in of_rank] for of_rank in ends]
            for seconds in (forward_s, both_ways_s - forward_s)
        )
        times = StageTimes.of(forward, backward, [[0.0] * chunks] * 2, hop_s=hop_s)
        steps[schedule] = float(simulate(schedules.actions(schedule, 2, chunks, 4), times).span_s)
    return TimedPipelines(tokens, 4, 4, forward_s, both_ways_s, hop_s, steps)


@pytest.mark.parametrize("slower", [0.9, 1.0, 1.2])
def test_what_an_end_takes_is_found(slower: float) -> None:
    """A constant and a part for each token, also where all layers are slower or faster than by themselves."""
    found = hop_ends(timed(size, slower=slower, end_s=5e-4 + 1e-6 * size) for size in (256, 512, 1024))
    assert found == pytest.approx((5e-4, 1e-6))


def test_ends_that_take_nothing_are_nothing() -> None:
    """Where chunks are no slower than the whole, and where they are faster; and nothing is known of no pipeline."""
    assert hop_ends([timed(256, slower=1.1, end_s=0.0)]) == pytest.approx((0.0, 0.0), abs=1e-12)
    one = timed(256, slower=1.0, end_s=0.0)
    faster = {"1f1b": one.step_s["1f1b"], "interleaved": 0.8 * one.step_s["interleaved"]}
    pipelines = TimedPipelines(256, 4, 4, one.forward_s, one.both_ways_s, one.hop_s, faster)
    assert hop_ends([pipelines]) == (0.0, 0.0)
    assert hop_ends([]) is None

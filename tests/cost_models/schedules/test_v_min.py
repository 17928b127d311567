import pytest

from cost_models.schedules import v_half, v_min
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.live import live_chunks
from cost_models.schedules.simulate import simulate
from cost_models.schedules.v_order import Block, squeezed_table
from tests.cost_models.schedules.cases import equal_times

RANKS = [2, 3, 4, 6, 8]


def bubble_units(p: int, m: int, *cost: float, hop: float = 0) -> float:
    """The simulated bubble, in units of a chunk."""
    return float(simulate(v_min.actions(p, 2, m), equal_times(p, 2, *cost, hop=hop)).span_s) - 2 * m * sum(cost)


@pytest.mark.parametrize("p", [*RANKS, 5, 7, 12, 16])
def test_the_bubble_is_the_published_one_at_the_peak(p: int) -> None:
    """(6p - 1 - 3k) units, or the p - 1 of the way down; more for fewer than k / 2 micro-batches unless p % 3 is 1."""
    for m in range(1, 17):
        k, times = v_min.peak_chunks(p), equal_times(p, 2, 1, 1, 1)
        expected = max(p - 1, 6 * p - 1 - 3 * k)
        assert v_min.closed_form_s(m, times) == pytest.approx(6 * m + expected, rel=1e-13)
        assert v_min.is_exact(m, times) == (2 * m >= k)
        assert (bubble_units(p, m, 1, 1, 1) == expected) == (2 * m >= k or p % 3 == 1)


def test_the_bubble_is_that_of_the_authors_scheduler() -> None:
    """Measured with it: 11.5 T for p = 8 at 8 chunks; T is two chunks."""
    assert (v_min.peak_chunks(8), bubble_units(8, 16, 1, 1, 1) / 2) == (8, 11.5)


@pytest.mark.parametrize("p", range(2, 17))
def test_the_peak_is_a_third_of_that_of_1f1b(p: int) -> None:
    """p / 3 + 2 / 3 to 4 / 3 micro-batches of two chunks, never more than V-Half keeps."""
    assert p / 3 + 2 / 3 <= v_min.peak_chunks(p) / 2 <= p / 3 + 4 / 3
    assert v_min.peak_chunks(p) <= v_half.peak_chunks(p)


@pytest.mark.parametrize("p", RANKS)
def test_unequal_parts_cost_more_with_every_micro_batch(p: int) -> None:
    """With F, B, W = 1, 1.2, 0.8 the bubble grows with m: the closed form is for equal parts only."""
    times = equal_times(p, 2, 1, 1.2, 0.8)
    assert not v_min.is_exact(16, times)
    grown = bubble_units(p, 16, 1, 1.2, 0.8) - bubble_units(p, 8, 1, 1.2, 0.8)
    assert grown > 8 * 0.5
    assert simulate(v_min.actions(p, 2, 16), times).span_s > v_min.closed_form_s(16, times) + 0.1


@pytest.mark.parametrize("p", [4, 6, 8])
@pytest.mark.parametrize("cost", [(1, 1, 1), (1, 1.2, 0.8), (1.3, 1, 0.7), (0.8, 1, 1.2)])
def test_a_micro_batch_takes_six_of_the_longer_pass_and_four_to_six_hops(p: int, cost: tuple[float, ...]) -> None:
    """Once the pipeline is full: the longer of forward and input gradient, which the other waits for."""
    hop, count = 0.05, 3 * p
    grown = bubble_units(p, 2 * count, *cost, hop=hop) - bubble_units(p, count, *cost, hop=hop)
    period = 2 * sum(cost) + grown / count
    longer = 6 * max(cost[:2])
    assert longer + 4 * hop - 1e-9 <= period <= longer + 6 * hop + 1e-9


def test_the_published_turns_are_longer_by_four_units() -> None:
    """Of 5 and of 8 ranks: (1, 1, 1) keeps as much, and its bubble is four units of a chunk more."""
    for p in (5, 8):
        published = squeezed_table("v-min", Block(v_min.AT_ONCE, turns=(1, 1, 1)), p, 2 * p)
        assert live_chunks(published).sum(axis=-1).max() == v_min.peak_chunks(p)
        bubble = simulate(published, equal_times(p, 2, 1, 1, 1)).span_s - 6 * 2 * p
        assert bubble == bubble_units(p, 2 * p, 1, 1, 1) + 4


@pytest.mark.parametrize(("p", "v", "m"), [(1, 2, 4), (2, 1, 4), (2, 2, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not v_min.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"v-min needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        v_min.actions(p, v, m)

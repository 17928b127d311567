import pytest

from cost_models.schedules.dual_order import meet_in_the_middle, meeting_bubble_s
from cost_models.schedules.equal_stages import mean
from tests.cost_models.schedules.cases import equal_times


def order(p: int, rank: int, m: int) -> str:
    """The order as a string; capitals are way 0."""
    names = ["Ff", "Bb", "Ii", "Ww"]
    return " ".join(f"{names[kind][way]}{number}" for kind, way, number, _ in meet_in_the_middle(p, rank, m))


def test_the_rank_where_the_ways_meet_has_nothing_to_wait_for() -> None:
    """It takes both ways in turn; half of the last backwards are split."""
    assert order(1, 0, 3) == "F0 f0 F1 b0 f1 B0 F2 b1 f2 B1 b2 I2 W2"


def test_a_rank_at_the_end_starts_with_way_0_and_fills_its_waits() -> None:
    """One rank away from the middle: two forwards ahead, then split backwards before the pairs begin."""
    assert order(2, 0, 4) == "F0 F1 F2 f0 i0 w0 f1 F3 b1 f2 B0 b2 f3 B1 b3 I2 W2 I3 W3"


@pytest.mark.parametrize("p", [1, 2, 3, 5])
def test_more_micro_batches_are_more_pairs(p: int) -> None:
    """Each one more adds two pairs to a rank and changes nothing else."""
    for rank in range(p):
        short, long = order(p, rank, 2 * p).split(), order(p, rank, 2 * p + 1).split()
        assert len(long) == len(short) + 4
        assert [word[0] for word in long[-p:]] == [word[0] for word in short[-p:]]


def test_the_bubble_vanishes_where_all_ranks_meet() -> None:
    """One rank a side waits for nobody."""
    chunk = mean(equal_times(1, 1, 1, 1.2, 0.8))
    assert meeting_bubble_s(1, chunk) == 0
    assert meeting_bubble_s(2, chunk) == pytest.approx(1.4)

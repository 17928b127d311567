import numpy as np
import pytest

from cost_models.schedules import dualpipe
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import Kind
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import COSTS, equal_times
from tests.cost_models.schedules.pairs import paired_span_s

SIZES = [(p, m) for p in (2, 4, 6, 8) for m in range(2 * p, 25, 2)]


@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize(("p", "m"), SIZES)
def test_the_bubble_of_actions_one_after_the_other(p: int, m: int, cost: tuple[float, ...]) -> None:
    """max((p/2 - 1) (F + B - W), (p/2 - 1) (2B - W) - F) in times of a stage; less than the published one."""
    times, (f, b, w), far = equal_times(p, 2, *cost), cost, p // 2 - 1
    bubble_s = max(far * (f + b - w), far * (2 * b - w) - f)
    span_s = simulate(dualpipe.actions(p, 2, m), times).span_s
    assert dualpipe.is_exact(m, times)
    assert span_s == pytest.approx(m * sum(cost) + bubble_s, rel=1e-13)
    assert dualpipe.closed_form_s(m, times) == pytest.approx(span_s, rel=1e-13)


@pytest.mark.parametrize("cost", [*COSTS, (1.0, 1.5, 0.5)])
@pytest.mark.parametrize(("p", "m"), [(2, 4), (4, 8), (4, 12), (6, 12), (8, 18)])
def test_the_published_bubble_is_that_of_pairs_that_end_together(p: int, m: int, cost: tuple[float, ...]) -> None:
    """(p/2 - 1) (F&B + D - 3W), F&B = F + D, where neither output of a pair leaves before both are done."""
    f, b, w = cost
    span_s = paired_span_s(dualpipe.actions(p, 2, m), *cost)
    assert span_s - m * sum(cost) == pytest.approx((p / 2 - 1) * (f + 2 * b - w), rel=1e-12)


def test_micro_batches_go_both_ways() -> None:
    """Even ones enter at rank 0 and run on chunk 0, odd ones at the last rank and run on chunk 1."""
    table = dualpipe.actions(4, 2, 8)
    assert np.array_equal(table.micro_batch % 2, table.chunk)
    firsts = [table.rank_actions(rank)[0] for rank in range(4)]
    assert [(first.kind, first.chunk, first.micro_batch) for first in firsts] == [
        (Kind.FORWARD, chunk, chunk) for chunk in (0, 0, 1, 1)
    ]


def test_the_step_is_the_same_seen_from_the_other_end() -> None:
    """Both ways are alike: turning ranks and copies round changes nothing."""
    rng = np.random.default_rng(25)
    cells, ranks = rng.random((3, 6, 2)), rng.random((2, 6))
    hop_s = rng.random(5)
    ends = [
        StageTimes.of(*cells, first_s=ranks[0], last_s=ranks[1], hop_s=[*hop_s, 0]),
        StageTimes.of(*cells[:, ::-1, ::-1], first_s=ranks[0, ::-1], last_s=ranks[1, ::-1], hop_s=[*hop_s[::-1], 0]),
    ]
    one_way, other_way = (simulate(dualpipe.actions(6, 2, 14), times).span_s for times in ends)
    assert one_way == pytest.approx(other_way, rel=1e-13)
    bounds = [dualpipe.lower_bound_s(14, times) for times in ends]
    assert bounds[0] <= one_way
    assert bounds[1] <= other_way


@pytest.mark.parametrize(("p", "v", "m"), [(3, 2, 8), (4, 1, 8), (4, 2, 9), (4, 2, 6), (0, 2, 4)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not dualpipe.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"dualpipe needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        dualpipe.actions(p, v, m)


def test_legality_works_on_columns() -> None:
    """A search asks for many layouts at once."""
    assert dualpipe.legal(np.array([2, 3, 4]), 2, np.array([4, 6, 6])).tolist() == [True, False, False]

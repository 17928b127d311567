import numpy as np
import pytest

from cost_models.schedules import slimpipe
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import equal_times


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("m", range(1, 17))
def test_slices_and_chunks_divide_the_bubble_of_equal_stages(p: int, m: int) -> None:
    """(m + (p - 1) / (n v)) t, whatever n with one chunk; closed form and bound are exact."""
    for v, n in [(1, 3), (1, 8), (2, p), (3, 2 * p)]:
        if not slimpipe.legal(p, v, m, slices=n):
            continue
        table = slimpipe.actions(p, v, m, slices=n)
        for f, b, w in ((1, 1, 1), (1, 1.2, 0.8)):
            times = equal_times(p, v, f, b, w)
            expected = (m + (p - 1) / (n * v)) * 3 * v
            assert simulate(table, times).span_s == pytest.approx(expected, rel=1e-12)
            assert slimpipe.closed_form_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)
            assert slimpipe.lower_bound_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("p", [2, 3, 6])
@pytest.mark.parametrize("m", [1, 2, 7])
def test_the_warm_up_pays_the_hops_and_nothing_else_does(p: int, m: int) -> None:
    """2 (p - 1) hops with one chunk, 2 (v - 1) n more with v, for hops up to the forward of a slice."""
    for v, n in [(1, 5), (1, 2 * p), (2, p), (2, 3 * p), (3, 2 * p)]:
        for hop in (0.05 / n, 1 / n):
            times = equal_times(p, v, 1, 1.2, 0.8, hop=hop)
            expected = (m * v + (p - 1) / n) * 3 + (2 * (p - 1) + 2 * (v - 1) * n) * hop
            assert simulate(slimpipe.actions(p, v, m, slices=n), times).span_s == pytest.approx(expected, rel=1e-12)
            assert slimpipe.closed_form_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)
            assert slimpipe.lower_bound_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)


def test_a_longer_hop_costs_more() -> None:
    """The limit of the closed form: a hop longer than a slice's forward outlasts the deeper warm-up."""
    times = equal_times(4, 1, 1.0, 1.5, 0.5, hop=0.5)
    span_s = simulate(slimpipe.actions(4, 1, 8, slices=8), times).span_s
    assert span_s > slimpipe.closed_form_s(8, times, slices=8)


def test_groups_of_p_slices_go_through_the_chunks() -> None:
    """p = 2, v = 2, n = 4: the warm-up of the last rank is n v - 1, of the first two deeper."""
    table = slimpipe.actions(2, 2, 1, slices=4)
    orders = [
        " ".join(f"{kind.name[0]}{chunk}:{part}" for kind, chunk, _, part in table.rank_actions(rank))
        for rank in range(2)
    ]
    forwards = "F0:0 F0:1 F1:0 F1:1 F0:2 F0:3 F1:2 F1:3"
    backwards = "B1:3 B1:2 B0:3 B0:2 B1:1 B1:0 B0:1 B0:0"
    assert orders == [f"{forwards} {backwards}"] * 2
    second = slimpipe.actions(2, 2, 2, slices=4).rank_actions(1)[8:12]
    assert [(kind.name[0], chunk, micro_batch, part) for kind, chunk, micro_batch, part in second] == [
        ("B", 1, 0, 3),
        ("F", 0, 1, 0),
        ("B", 1, 0, 2),
        ("F", 0, 1, 1),
    ]


@pytest.mark.parametrize(("p", "v", "m", "n"), [(0, 1, 1, 1), (1, 2, 4, 2), (2, 1, 0, 1), (2, 1, 2, 0), (4, 2, 4, 6)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int, n: int) -> None:
    """The message names what is needed and what was given."""
    assert not slimpipe.legal(p, v, m, slices=n)
    expected = f"slimpipe needs .* got ranks {p}, chunks {v}, micro-batches {m}, slices {n}"
    with pytest.raises(IllegalScheduleError, match=expected):
        slimpipe.actions(p, v, m, slices=n)


def test_legality_works_on_columns() -> None:
    """A search asks for many layouts at once."""
    legal = slimpipe.legal(np.array([1, 2, 4, 4]), np.array([1, 1, 2, 2]), 4, slices=np.array([3, 3, 6, 8]))
    assert legal.tolist() == [True, True, False, True]

import numpy as np
import pytest

from cost_models.schedules import interleaved
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import equal_times

LEGAL = [(p, v, m) for p in (2, 3, 4, 8) for v in (2, 4) for m in range(1, 17) if m % p == 0]


@pytest.mark.parametrize(("p", "v", "m"), LEGAL)
def test_the_bubble_of_equal_stages_is_divided_by_the_chunks(p: int, v: int, m: int) -> None:
    """m t + (p - 1) t / v; closed form and bound are exact."""
    times = equal_times(p, v, 1.0, 1.25, 0.5)
    expected = m * v * 2.75 + (p - 1) * 2.75
    assert simulate(interleaved.actions(p, v, m), times).span_s == pytest.approx(expected, rel=1e-13)
    assert interleaved.closed_form_s(m, times) == pytest.approx(expected, rel=1e-13)
    assert interleaved.lower_bound_s(m, times) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("p", "v", "m"), LEGAL)
def test_only_one_trip_through_all_stages_pays_hops(p: int, v: int, m: int) -> None:
    """2 (p v - 1) hops whatever m, for hops no longer than a chunk's forward or backward."""
    for hop in (0.125, 1.0):
        times = equal_times(p, v, 1.0, 1.5, 0.5, hop=hop)
        extra_s = simulate(interleaved.actions(p, v, m), times).span_s - 3 * (m * v + p - 1)
        assert extra_s == 2 * (p * v - 1) * hop
        assert interleaved.closed_form_s(m, times) == 3 * (m * v + p - 1) + extra_s
        assert interleaved.lower_bound_s(m, times) == 3 * (m * v + p - 1) + extra_s


@pytest.mark.parametrize(("p", "v", "m"), LEGAL)
def test_any_edges_are_exact_for_equal_stages(p: int, v: int, m: int) -> None:
    """First and last work that differs from rank to rank."""
    edges = 8 * np.random.default_rng(17).random((2, 40, p))
    whole = np.ones((p, v))
    times = StageTimes.of(whole, whole, whole, first_s=edges[0], last_s=edges[1], hop_s=0.125)
    span_s = simulate(interleaved.actions(p, v, m), times).span_s
    assert np.allclose(interleaved.closed_form_s(m, times), span_s, rtol=1e-12, atol=0)


def test_longer_hops_cost_more_than_one_trip() -> None:
    """The limit of the closed form: a hop longer than a chunk's forward is not hidden by the warm-up."""
    times = equal_times(4, 2, 1.0, 1.5, 0.5, hop=2.0)
    assert simulate(interleaved.actions(4, 2, 16), times).span_s > interleaved.closed_form_s(16, times)


def test_the_order_is_that_of_megatron() -> None:
    """p = 2, v = 2, m = 4: groups of p micro-batches a chunk, (v - 1) p + 2 (p - 1 - i) forwards to warm up."""
    table = interleaved.actions(2, 2, 4)
    orders = [
        " ".join(f"{'FB'[kind]}{chunk}.{micro_batch}" for kind, chunk, micro_batch, _ in table.rank_actions(rank))
        for rank in range(2)
    ]
    assert orders[0] == "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3"
    assert orders[1] == "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"


@pytest.mark.parametrize(("p", "v", "m"), [(1, 2, 2), (2, 1, 2), (4, 2, 6), (4, 2, 0), (0, 2, 2)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not interleaved.legal(p, v, m)
    with pytest.raises(
        IllegalScheduleError, match=f"interleaved needs .* got ranks {p}, chunks {v}, micro-batches {m}"
    ):
        interleaved.actions(p, v, m)


def test_legality_works_on_columns() -> None:
    """A search asks for many layouts at once."""
    legal = interleaved.legal(np.array([1, 2, 4, 4]), np.array([2, 2, 2, 2]), np.array([4, 4, 6, 8]))
    assert legal.tolist() == [False, True, False, True]

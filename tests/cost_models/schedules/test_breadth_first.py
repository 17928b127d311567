import numpy as np
import pytest

from cost_models.schedules import breadth_first
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.live import live_chunks
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import SHAPES, equal_times, random_times


@pytest.mark.parametrize("p", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("v", [1, 2, 5])
@pytest.mark.parametrize("m", range(1, 17))
def test_chunks_divide_the_bubble_unless_ranks_are_more_than_micro_batches(p: int, v: int, m: int) -> None:
    """(p - 1) t / v with m >= p, (p v + m - 1 - m v) t / v with fewer, t of all chunks."""
    for f, b, w in ((1, 1, 1), (1, 1.2, 0.8)):
        times = equal_times(p, v, f, b, w)
        bubble = 3 * (p - 1 if m >= p else p * v + m - 1 - m * v)
        span_s = simulate(breadth_first.actions(p, v, m), times).span_s
        assert span_s == pytest.approx(3 * m * v + bubble, rel=1e-12)
        assert breadth_first.closed_form_s(m, times) == pytest.approx(span_s, rel=1e-12)


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["breadth-first"])
def test_closed_form_and_bound_are_exact_for_any_stages(p: int, v: int, m: int) -> None:
    """Unequal stages, edges and hops included."""
    times = random_times(np.random.default_rng(28), p, v, batch=500)
    span_s = simulate(breadth_first.actions(p, v, m), times).span_s
    assert np.allclose(breadth_first.closed_form_s(m, times), span_s, rtol=1e-12, atol=0)
    assert np.array_equal(breadth_first.lower_bound_s(m, times), breadth_first.closed_form_s(m, times))


@pytest.mark.parametrize(("m", "hops"), [(4, 2 * (4 * 3 - 1)), (8, 2 * 3)])
def test_twice_as_many_micro_batches_as_ranks_hide_the_hops(m: int, hops: int) -> None:
    """p = 4, v = 3: every hop of one micro-batch with m = p, only those to the last rank with m = 2 p."""
    times = equal_times(4, 3, 1, 1.5, 0.5, hop=0.25)
    assert simulate(breadth_first.actions(4, 3, m), times).span_s == 3 * (3 * m + 3) + hops * 0.25


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["breadth-first"])
def test_every_micro_batch_stays_alive(p: int, v: int, m: int) -> None:
    """m in every chunk, on all ranks."""
    assert live_chunks(breadth_first.actions(p, v, m)).tolist() == [[[m] * v]] * p


def test_all_micro_batches_go_through_one_chunk_at_a_time() -> None:
    """Forwards, then backwards through the chunks in reverse."""
    rows = breadth_first.actions(2, 2, 2).rank_actions(0)
    order = " ".join(f"{kind.name[0]}{chunk}.{micro_batch}" for kind, chunk, micro_batch, _ in rows)
    assert order == "F0.0 F0.1 F1.0 F1.1 B1.0 B1.1 B0.0 B0.1"


@pytest.mark.parametrize(("p", "v", "m"), [(0, 1, 1), (1, 2, 4), (2, 0, 4), (2, 1, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not breadth_first.legal(p, v, m)
    expected = f"breadth-first needs .* got ranks {p}, chunks {v}, micro-batches {m}"
    with pytest.raises(IllegalScheduleError, match=expected):
        breadth_first.actions(p, v, m)

import numpy as np
import pytest

from cost_models.schedules import terapipe
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import equal_times, random_times

SLICES = [2, 3, 8]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("m", range(1, 17))
def test_slices_divide_the_bubble_of_equal_stages(p: int, m: int) -> None:
    """(m + (p - 1) / n) t, and 2 (p - 1) hops."""
    for n in SLICES:
        table = terapipe.actions(p, 1, m, slices=n)
        for f, b, w, hop in ((1, 1, 1, 0), (1, 1.2, 0.8, 0), (1, 1.2, 0.8, 0.25)):
            times = equal_times(p, 1, f, b, w, hop=hop)
            expected = (m + (p - 1) / n) * 3 + 2 * (p - 1) * hop
            assert simulate(table, times).span_s == pytest.approx(expected, rel=1e-12)
            assert terapipe.closed_form_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("p", "m", "n"), [(2, 3, 4), (4, 5, 3), (6, 2, 8)])
def test_closed_form_is_exact_for_equal_slices_of_any_stages(p: int, m: int, n: int) -> None:
    """Unequal stages, edges and hops included."""
    times = random_times(np.random.default_rng(26), p, 1, batch=300)
    span_s = simulate(terapipe.actions(p, 1, m, slices=n), times).span_s
    assert np.allclose(terapipe.closed_form_s(m, times, slices=n), span_s, rtol=1e-12, atol=0)
    assert np.array_equal(terapipe.lower_bound_s(m, times, slices=n), terapipe.closed_form_s(m, times, slices=n))


@pytest.mark.parametrize(("p", "m", "n"), [(2, 3, 4), (4, 5, 3), (6, 2, 8)])
def test_closed_form_is_exact_for_any_slices_of_equal_stages(p: int, m: int, n: int) -> None:
    """m t and the p - 1 longest slices, forwards and backwards."""
    whole = np.ones((p, 1))
    times = StageTimes.of(whole, whole, whole, forward_attention_s=0.7, backward_attention_s=0.4, hop_s=0.1)
    longest_s = 3 / n + (0.7 + 0.4) * (n - 1) / n**2
    span_s = simulate(terapipe.actions(p, 1, m, slices=n), times).span_s
    assert span_s == pytest.approx(3 * m + (p - 1) * (longest_s + 0.2), rel=1e-12)
    assert terapipe.closed_form_s(m, times, slices=n) == pytest.approx(span_s, rel=1e-12)


def test_all_forwards_come_before_all_backwards() -> None:
    """Micro-batches in order, the slices of a backward in reverse."""
    rows = terapipe.actions(2, 1, 2, slices=2).rank_actions(1)
    order = " ".join(f"{kind.name[0]}{micro_batch}:{part}" for kind, _, micro_batch, part in rows)
    assert order == "F0:0 F0:1 F1:0 F1:1 B0:1 B0:0 B1:1 B1:0"


@pytest.mark.parametrize(("p", "v", "m", "n"), [(0, 1, 1, 1), (2, 2, 4, 1), (2, 1, 0, 1), (2, 1, 2, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int, n: int) -> None:
    """The message names what is needed and what was given."""
    assert not terapipe.legal(p, v, m, slices=n)
    expected = f"terapipe needs .* got ranks {p}, chunks {v}, micro-batches {m}, slices {n}"
    with pytest.raises(IllegalScheduleError, match=expected):
        terapipe.actions(p, v, m, slices=n)

import numpy as np
import pytest

from cost_models.schedules import gpipe
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import SHAPES, equal_times, random_times


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("m", range(1, 17))
def test_equal_stages_take_m_plus_p_minus_1_micro_batches(p: int, m: int) -> None:
    """The bubble of GPipe is (p - 1) t."""
    times = equal_times(p, 1, 1.0, 1.25, 0.5)
    assert simulate(gpipe.actions(p, 1, m), times).span_s == pytest.approx((m + p - 1) * 2.75, rel=1e-13)
    assert gpipe.closed_form_s(m, times) == pytest.approx((m + p - 1) * 2.75, rel=1e-13)


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["gpipe"])
def test_closed_form_and_bound_are_exact_for_any_stages(p: int, v: int, m: int) -> None:
    """Unequal stages, edges and hops included."""
    times = random_times(np.random.default_rng(14), p, v, batch=500)
    span_s = simulate(gpipe.actions(p, v, m), times).span_s
    assert np.allclose(gpipe.closed_form_s(m, times), span_s, rtol=1e-12, atol=0)
    assert np.array_equal(gpipe.lower_bound_s(m, times), gpipe.closed_form_s(m, times))


def test_all_forwards_come_before_all_backwards() -> None:
    """On every rank, both in the order of the micro-batches."""
    for rank in range(3):
        rows = gpipe.actions(3, 1, 2).rank_actions(rank)
        assert [(kind.name[0], micro_batch) for kind, _, micro_batch, _ in rows] == [
            ("F", 0),
            ("F", 1),
            ("B", 0),
            ("B", 1),
        ]


@pytest.mark.parametrize(("p", "v", "m"), [(0, 1, 1), (2, 2, 4), (2, 1, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not gpipe.legal(p, v, m)
    with pytest.raises(IllegalScheduleError, match=f"gpipe needs .* got ranks {p}, chunks {v}, micro-batches {m}"):
        gpipe.actions(p, v, m)

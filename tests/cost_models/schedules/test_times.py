import numpy as np
import pytest

from cost_models.schedules.errors import StageTimesError
from cost_models.schedules.times import StageTimes


def test_scalars_and_leading_axes_broadcast() -> None:
    """First, last and hop may be one number, and one assignment's times join those of many."""
    times = StageTimes.of(np.ones((5, 3, 2)), np.ones((3, 2)), np.ones((3, 2)), first_s=2.0, hop_s=np.ones((5, 3)))
    assert (times.batch, times.ranks, times.chunks) == ((5,), 3, 2)
    assert times.weight_grad_s.shape == (5, 3, 2)
    assert times.first_s.tolist() == [[2.0] * 3] * 5
    assert times.last_s.shape == times.hop_s.shape == (5, 3)


def test_work_is_all_chunks_forward_and_backward() -> None:
    """t_i sums the three times over the chunks of a rank."""
    times = StageTimes.of([[1.0, 2.0]], [[3.0, 4.0]], [[5.0, 6.0]])
    assert times.backward_s.tolist() == [[8.0, 10.0]]
    assert times.work_s.tolist() == [21.0]


@pytest.mark.parametrize("bad", [-1.0, np.nan, np.inf])
@pytest.mark.parametrize("field", ["forward_s", "input_grad_s", "weight_grad_s", "first_s", "last_s", "hop_s"])
def test_negative_and_infinite_times_are_refused_by_name(field: str, bad: float) -> None:
    """The message names the field and the value."""
    cells = np.ones((2, 1))
    given = {"forward_s": cells, "input_grad_s": cells, "weight_grad_s": cells}
    given[field] = np.full((2, 1) if field in given else (2,), bad)
    with pytest.raises(StageTimesError, match=f"{field} must be finite and >= 0, got {bad}"):
        StageTimes.of(**given)


@pytest.mark.parametrize(
    ("forward", "first"),
    [((2,), ()), ((3, 1), (2,)), ((1, 1), (2,)), ((0, 1), ()), ((2, 0), ()), ((4, 2, 1), (3, 2))],
)
def test_shapes_that_do_not_fit_are_refused(forward: tuple[int, ...], first: tuple[int, ...]) -> None:
    """Ranks and chunks are never guessed from a shape that does not have them."""
    cells = np.ones(forward)
    with pytest.raises(StageTimesError, match="forward_s"):
        StageTimes.of(cells, cells, cells, first_s=np.ones(first))

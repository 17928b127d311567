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


def test_a_later_slice_does_more_attention() -> None:
    """Slice j of n takes (whole - attention) / n + attention (2 j + 1) / n^2; together they are the micro-batch."""
    times = StageTimes.of(
        [[8.0], [8.0]], [[16.0], [4.0]], [[4.0], [4.0]], forward_attention_s=[[4.0], [0.0]], backward_attention_s=4.0
    )
    assert times.slice_forward_s(2).tolist() == [[[2 + 1, 2 + 3]], [[4, 4]]]
    assert times.slice_input_grad_s(2).tolist() == [[[6 + 1, 6 + 3]], [[1, 3]]]
    assert times.slice_weight_grad_s(2).tolist() == [[[2, 2]], [[2, 2]]]
    assert times.slice_backward_s(2).tolist() == [[[9, 11]], [[3, 5]]]
    assert times.slice_backward_s(7).sum(axis=-1) == pytest.approx(times.backward_s)


def test_one_slice_can_stand_for_a_micro_batch() -> None:
    """The first is the shortest, the last the longest, and neither has attention to cut any more."""
    times = StageTimes.of([[8.0]], [[16.0]], [[4.0]], hop_s=1.0, forward_attention_s=4.0, backward_attention_s=4.0)
    first, mean, last = times.one_slice(2, 0), times.mean_slice(2), times.one_slice(2, 1)
    assert [float(part.work_s[0]) for part in (first, mean, last)] == [3 + 7 + 2, 14, 5 + 9 + 2]
    assert first.forward_attention_s.tolist() == last.backward_attention_s.tolist() == [[0.0]]
    assert mean.hop_s.tolist() == [1.0]


@pytest.mark.parametrize(
    ("field", "whole"), [("forward_attention_s", "forward_s"), ("backward_attention_s", "input_grad_s")]
)
def test_attention_is_at_most_what_it_is_part_of(field: str, whole: str) -> None:
    """The message names both, and the first value that is too large."""
    with pytest.raises(StageTimesError, match=f"{field} must be at most {whole}, 1.0, got 1.5"):
        StageTimes.of([[1.0, 2.0]], [[1.0, 2.0]], [[1.0, 2.0]], **{field: [[1.5, 2.0]]})

import numpy as np
import pytest

from cost_models.schedules.equal_stages import are_equal, mean, step_s
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import equal_times


def test_the_mean_is_over_ranks_and_the_sum_over_chunks() -> None:
    """F, B and W of a rank."""
    times = StageTimes.of([[1.0, 2.0], [3.0, 4.0]], [[1.0, 1.0], [2.0, 2.0]], [[0.0, 1.0], [0.0, 2.0]])
    assert mean(times) == (5.0, 3.0, 1.5)


def test_the_slowest_rank_edges_and_one_way_of_hops_add_to_the_bubble() -> None:
    """m t of the slowest rank, first work that outlasts the way to its rank, the last work, hops down and back."""
    times = StageTimes.of(
        [[1.0], [2.0]], [[1.0], [2.0]], [[1.0], [2.0]], first_s=[0.0, 4.0], last_s=[1.0, 3.0], hop_s=0.5
    )
    assert step_s(10, times, np.float64(7.0)) == 10 * 6 + 7 + (4 - 1.5) + 3 + 2 * 0.5


@pytest.mark.parametrize("field", ["forward_s", "input_grad_s", "weight_grad_s", "first_s", "last_s", "hop_s"])
def test_any_difference_edge_or_hop_makes_stages_unequal(field: str) -> None:
    """Told for each assignment; the link after the last rank counts for nothing."""
    same = equal_times(3, 2, 1, 1, 1)
    assert are_equal(same)
    arrays = {name: np.stack([getattr(same, name)] * 2) for name in same.__dataclass_fields__}
    arrays[field][1, 0] += 0.25
    assert are_equal(StageTimes(**arrays)).tolist() == [True, False]
    assert are_equal(StageTimes.of([[1.0], [1.0]], [[1.0], [1.0]], [[1.0], [1.0]], hop_s=[0.0, 5.0]))

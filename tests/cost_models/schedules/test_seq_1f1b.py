import numpy as np
import pytest

from cost_models.schedules import one_f_one_b, seq_1f1b
from cost_models.schedules.errors import IllegalScheduleError
from cost_models.schedules.simulate import simulate
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import equal_times

SLICES = [2, 3, 8]


@pytest.mark.parametrize("p", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("m", range(1, 17))
def test_slices_divide_the_bubble_of_equal_stages(p: int, m: int) -> None:
    """(m + (p - 1) / n) t and the hops of 1F1B of m n - n + 1 units, however long; closed form and bound are exact."""
    for n in SLICES:
        table = seq_1f1b.actions(p, 1, m, slices=n)
        for f, b, w, hop in ((1, 1, 1, 0), (1, 1.2, 0.8, 0), (1, 1.2, 0.8, 4)):
            times = equal_times(p, 1, f, b, w, hop=hop)
            expected = (m + (p - 1) / n) * 3 + one_f_one_b.hops(p, m * n - n + 1) * hop
            assert simulate(table, times).span_s == pytest.approx(expected, rel=1e-12)
            assert seq_1f1b.closed_form_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)
            assert seq_1f1b.lower_bound_s(m, times, slices=n) == pytest.approx(expected, rel=1e-12)


def test_bounds_of_nearly_equal_stages_and_slices_are_worth_having() -> None:
    """Stages within 10 % of each other, half of the forward attention: within a quarter of the step."""
    rng = np.random.default_rng(27)
    near = [0.9 + 0.2 * rng.random((200, 4, 1)) for _ in range(3)]
    times = StageTimes.of(*near, hop_s=0.002, forward_attention_s=near[0] / 2, backward_attention_s=near[1] / 2)
    ratio = seq_1f1b.lower_bound_s(6, times, slices=8) / simulate(seq_1f1b.actions(4, 1, 6, slices=8), times).span_s
    assert ratio.min() > 0.75


def test_each_rank_warms_up_to_the_last_slice() -> None:
    """n - 1 + p - 1 - i forwards, then one forward, one backward."""
    table = seq_1f1b.actions(2, 1, 2, slices=3)
    orders = [
        " ".join(f"{kind.name[0]}{micro_batch}:{part}" for kind, _, micro_batch, part in table.rank_actions(rank))
        for rank in range(2)
    ]
    assert orders[0] == "F0:0 F0:1 F0:2 F1:0 B0:2 F1:1 B0:1 F1:2 B0:0 B1:2 B1:1 B1:0"
    assert orders[1] == "F0:0 F0:1 F0:2 B0:2 F1:0 B0:1 F1:1 B0:0 F1:2 B1:2 B1:1 B1:0"


@pytest.mark.parametrize(("p", "v", "m", "n"), [(0, 1, 1, 1), (2, 2, 4, 1), (2, 1, 0, 1), (2, 1, 2, 0)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int, n: int) -> None:
    """The message names what is needed and what was given."""
    assert not seq_1f1b.legal(p, v, m, slices=n)
    expected = f"seq1f1b needs .* got ranks {p}, chunks {v}, micro-batches {m}, slices {n}"
    with pytest.raises(IllegalScheduleError, match=expected):
        seq_1f1b.actions(p, v, m, slices=n)

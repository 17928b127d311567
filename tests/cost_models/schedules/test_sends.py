import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.sends import waiting_for_sends
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import equal_times, random_times


def test_every_send_is_part_of_what_sends() -> None:
    """Three ranks of two chunks: of the forwards all but the model's last, of the gradients all but its first."""
    times = random_times(np.random.default_rng(0), 3, 2, batch=4)
    waiting = waiting_for_sends(times, schedules.placement("interleaved", 3, 2))
    first, second, third = times.hop_s.T
    more = waiting.forward_s - times.forward_s
    assert more[:, :, 0] == pytest.approx(np.column_stack([first, second, third]))
    assert more[:, :, 1] == pytest.approx(np.column_stack([first, second, 0 * third]))
    back = waiting.input_grad_s - times.input_grad_s
    assert back[:, :, 0] == pytest.approx(np.column_stack([0 * third, first, second]))
    assert back[:, :, 1] == pytest.approx(np.column_stack([third, first, second]))
    assert not waiting.hop_s.any()


def test_nothing_is_sent_at_the_turn_of_a_v() -> None:
    """Rank 1 of two holds the second and the third of four virtual stages."""
    times = equal_times(2, 2, 1, 1, 1, hop=0.5)
    waiting = waiting_for_sends(times, schedules.placement("zb-v", 2, 2))
    assert waiting.forward_s.tolist() == [[1.5, 1.0], [1.0, 1.5]]
    assert waiting.input_grad_s.tolist() == [[1.0, 1.5], [1.5, 1.0]]


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "gpipe"])
def test_waiting_is_never_faster(name: str) -> None:
    """A step in which ranks wait for their sends is at least as long, and as long without hops."""
    v = 2 if name == "interleaved" else 1
    table, placement = schedules.actions(name, 4, v, 8), schedules.placement(name, 4, v)
    times = random_times(np.random.default_rng(1), 4, v, batch=50)
    plain, waiting = (simulate(table, each).span_s for each in (times, waiting_for_sends(times, placement)))
    assert np.all(waiting >= plain * (1 - 1e-12))
    still = times.hop_s.max(axis=-1) == 0
    assert still.any()
    assert waiting[still] == pytest.approx(plain[still])

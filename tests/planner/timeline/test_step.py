import numpy as np
import pytest

from cost_models import schedules
from planner.timeline.step import action_name
from tests.planner.timeline.cases import equal_step, split_gradients, two_ranks


def test_a_step_of_two_ranks_is_as_drawn_by_hand() -> None:
    """1F1B of 3 micro-batches: rank 1 starts a forward later, rank 0 waits for the first backward."""
    step = two_ranks(global_s=0.5)
    assert step.start_s[: step.table.actions // 2].tolist() == [0, 1, 4, 6, 7, 10]
    assert step.span_s == 12
    assert step.step_s == 12.5
    assert step.busy_s.tolist() == [9, 9]
    assert step.bubble_s.tolist() == [3, 3]


@pytest.mark.parametrize(("name", "p", "v", "m"), [("1f1b", 4, 1, 8), ("interleaved", 4, 2, 8), ("gpipe", 3, 1, 4)])
def test_the_critical_path_fills_the_step(name: str, p: int, v: int, m: int) -> None:
    """Work on the path and the hops between add up to the span, edges included."""
    step = equal_step(schedules.actions(name, p, v, m), hop_s=0.25, edge_s=0.5)
    assert step.path_by_rank_s.sum() + 0.25 * step.path_waited.sum() == pytest.approx(step.span_s)
    gaps = step.start_s[step.path[1:]] - step.end_s[step.path[:-1]]
    assert gaps == pytest.approx(0.25 * step.path_waited[1:])


def test_messages_arrive_a_hop_after_they_are_sent() -> None:
    """Each of 3 micro-batches crosses the link twice, and no receiver starts before."""
    step = two_ranks(hop_s=0.25)
    hops = step.hops()
    assert len(hops.action) == 6
    assert np.all(hops.arrived_s - hops.sent_s == pytest.approx(0.25))
    assert np.all(step.start_s[hops.action] >= hops.arrived_s)
    assert np.all(np.diff(hops.sent_s) >= 0)
    assert len(two_ranks().hops().action) == 0


def test_edges_are_what_ranks_do_beside_their_actions() -> None:
    """Only edges that take time are there."""
    assert two_ranks().edges(0) == []
    names = [name for name, _, _ in two_ranks(edge_s=1, global_s=1).edges(0)]
    assert names == ["before the first forward", "after the last backward", "global part of the step"]


def test_names_tell_chunk_and_slice_only_where_there_are_several() -> None:
    """What a training loop has to call its regions."""
    assert action_name(two_ranks().table, 2) == "backward m0"
    assert action_name(split_gradients().table, 9) == "weight_grad m1"
    assert action_name(schedules.actions("interleaved", 2, 2, 2), 2) == "forward m0 c1"

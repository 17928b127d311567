import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules import replay
from cost_models.schedules.graph import action_graph
from cost_models.schedules.simulate import simulate
from tests.cost_models.schedules.cases import ALL, random_times


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_both_ways_of_replaying_give_the_same_bits(
    name: str, p: int, v: int, m: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level by level or action by action is a matter of speed only."""
    graph = action_graph(schedules.actions(name, p, v, m))
    times = random_times(np.random.default_rng(0), p, v, batch=5)
    (columns,) = replay.blocks(graph, times)
    ends = []
    for narrow in (0, 10**9):
        monkeypatch.setattr(replay, "NARROW", narrow)
        ends.append(replay.end_times(graph, columns))
    assert ends[0].shape == (p + graph.actions, 5)
    assert np.array_equal(ends[0], ends[1])


def test_many_assignments_go_through_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """How many fit in memory at once does not change any result."""
    table = schedules.actions("interleaved", 4, 2, 8)
    times = random_times(np.random.default_rng(1), 4, 2, batch=50)
    whole = simulate(table, times).rank_end_s
    monkeypatch.setattr(replay, "BLOCK", 7 * (table.actions + 4))
    assert len(list(replay.blocks(action_graph(table), times))) == 8
    assert np.array_equal(simulate(table, times).rank_end_s, whole)

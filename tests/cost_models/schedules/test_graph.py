import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.errors import InvalidTableError
from cost_models.schedules.graph import action_graph
from tests.cost_models.schedules.cases import ALL, table_of


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_every_action_lies_on_a_later_level_than_what_it_waits_for(name: str, p: int, v: int, m: int) -> None:
    """Nodes are numbered by level, so each level needs only nodes before it."""
    graph = action_graph(schedules.actions(name, p, v, m))
    start = np.repeat(graph.level_start[:-1], np.diff(graph.level_start))
    assert np.all(graph.previous < start)
    assert np.all(graph.source < start)
    assert graph.level_start[0] == p
    assert graph.level_start[-1] == p + graph.actions
    assert sorted(graph.node) == list(range(p, p + graph.actions))


def test_the_graph_of_a_table_is_built_once() -> None:
    """The same table has the same graph."""
    assert action_graph(schedules.actions("1f1b", 4, 1, 8)) is action_graph(schedules.actions("1f1b", 4, 1, 8))


def test_a_table_that_is_not_valid_has_no_graph() -> None:
    """Whatever is simulated has passed the validity check."""
    with pytest.raises(InvalidTableError, match="exactly once"):
        action_graph(table_of("F0 B0", "F0"))

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules import replay
from cost_models.schedules.critical_path import PathCoefficients, critical_actions, critical_path
from cost_models.schedules.errors import StageTimesError
from cost_models.schedules.simulate import action_times, simulate
from cost_models.schedules.table import Kind
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import ALL, equal_times, one, random_times, table_of

KINDS = {
    "forward": (Kind.FORWARD,),
    "input_grad": (Kind.BACKWARD, Kind.INPUT_GRAD),
    "weight_grad": (Kind.BACKWARD, Kind.WEIGHT_GRAD),
}
"""What each coefficient counts."""


def cut(path: PathCoefficients) -> PathCoefficients:
    """The paths with an axis more, to be priced with every assignment of another batch."""
    return PathCoefficients(*(getattr(path, name)[:, None] for name in path.__dataclass_fields__))


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_the_path_is_as_long_as_the_step(name: str, p: int, v: int, m: int) -> None:
    """Coefficients times the times they were found with give the simulated span."""
    table = schedules.actions(name, p, v, m)
    times = random_times(np.random.default_rng(7), p, v, batch=60)
    path = critical_path(table, times)
    assert np.allclose(path.length_s(times), simulate(table, times).span_s, rtol=1e-13, atol=0)
    assert np.all(path.first.sum(axis=-1) == 1)
    assert np.all(path.last.sum(axis=-1) == 1)


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_the_path_is_a_cut_of_every_other_assignment(name: str, p: int, v: int, m: int) -> None:
    """With any other times the same coefficients stay at or below the simulated span."""
    table = schedules.actions(name, p, v, m)
    rng = np.random.default_rng(8)
    path = cut(critical_path(table, random_times(rng, p, v, batch=20)))
    others = random_times(rng, p, v, batch=100)
    lengths = path.length_s(others)
    assert lengths.shape == (20, 100)
    assert np.all(lengths <= simulate(table, others).span_s * (1 + 1e-12))


def test_coefficients_count_each_time_on_the_path() -> None:
    """Two ranks, one micro-batch: down, back, both hops, and the work of rank 0 before and after."""
    path = critical_path(table_of("F0 I0 W0", "F0 B0"), equal_times(2, 1, 1, 1, 1, first=1, last=1, hop=1))
    assert path.forward.tolist() == [[1], [1]]
    assert path.input_grad.tolist() == [[1], [1]]
    assert path.weight_grad.tolist() == [[1], [1]]
    assert path.first.tolist() == [1, 0]
    assert path.last.tolist() == [1, 0]
    assert path.hop.tolist() == [2, 0]


def test_a_slow_rank_is_on_the_path_with_all_its_micro_batches() -> None:
    """Where rank 2 of 4 is ten times slower, the step is its m micro-batches and the way there and back."""
    work = np.array([[1.0], [1.0], [10.0], [1.0]])
    path = critical_path(schedules.actions("1f1b", 4, 1, 16), StageTimes.of(work, work, work))
    assert path.forward[2, 0] == path.input_grad[2, 0] == 16
    assert path.forward[0, 0] == path.weight_grad[1, 0] == 1


def test_paths_do_not_depend_on_how_many_are_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of assignments give the same coefficients as all at once."""
    table = schedules.actions("interleaved", 3, 2, 6)
    times = random_times(np.random.default_rng(9), 3, 2, batch=23)
    whole = critical_path(table, times)
    monkeypatch.setattr(replay, "BLOCK", 5 * (table.actions + 3))
    parts = critical_path(table, times)
    for name in whole.__dataclass_fields__:
        assert np.array_equal(getattr(whole, name), getattr(parts, name))


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_the_actions_of_the_path_are_those_of_its_coefficients(name: str, p: int, v: int, m: int) -> None:
    """They run one after the other, waiting for nothing but hops, and take all of the span that is not an edge."""
    table = schedules.actions(name, p, v, m)
    times = one(random_times(np.random.default_rng(9), p, v, batch=3), 2)
    path, (actions, waited) = critical_path(table, times), critical_actions(table, times)
    start_s, end_s = action_times(table, times)
    rank = table.rank_of()
    assert path.first[rank[actions[0]]] == path.last[rank[actions[-1]]] == 1
    for field, kinds in KINDS.items():
        counted = np.bincount(rank[actions[np.isin(table.kind[actions], kinds)]], minlength=p)
        assert getattr(path, field).sum(axis=-1) == pytest.approx(counted)
    assert not np.any((start_s[actions[1:]] - end_s[actions[:-1]] > 1e-12) & ~waited[1:])
    assert start_s[actions[0]] == times.first_s[rank[actions[0]]]
    span_s = end_s[actions[-1]] + times.last_s[rank[actions[-1]]]
    assert span_s == pytest.approx(float(simulate(table, times).span_s), rel=1e-12)


def test_the_actions_of_many_assignments_are_not_asked_for() -> None:
    """A path of actions is that of one assignment."""
    with pytest.raises(StageTimesError, match="one assignment"):
        critical_actions(schedules.actions("1f1b", 2, 1, 2), random_times(np.random.default_rng(0), 2, 1, batch=2))

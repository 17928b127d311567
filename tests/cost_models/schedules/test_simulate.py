import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.errors import StageTimesError
from cost_models.schedules.graph import action_graph
from cost_models.schedules.simulate import action_times, run_times, simulate
from cost_models.schedules.table import ActionTable, Kind, Placement
from cost_models.schedules.times import StageTimes
from tests.cost_models.schedules.cases import ALL, equal_times, one, plain_span_s, random_times, table_of


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_a_batch_equals_a_plain_simulator_run_one_by_one(name: str, p: int, v: int, m: int) -> None:
    """The vectorised replay is the schedule, not an approximation of it."""
    table = schedules.actions(name, p, v, m)
    times = random_times(np.random.default_rng(2), p, v, batch=8)
    spans = simulate(table, times).span_s
    for index in range(8):
        assert spans[index] == pytest.approx(plain_span_s(table, one(times, index)), rel=1e-13)


def test_split_backwards_and_slices_replay_too() -> None:
    """Zero-bubble and sliced tables need nothing but their table."""
    rng = np.random.default_rng(3)
    split = table_of("F0 F1 I0 I1 W0 W1", "F0 I0 F1 W0 I1 W1")
    sliced = table_of("F0:0 F0:1 B0:1 B0:0", "F0:0 F0:1 B0:1 B0:0", slices=2)
    for table in (split, sliced):
        times = random_times(rng, 2, 1, batch=20)
        spans = simulate(table, times).span_s
        expected = [plain_span_s(table, one(times, index)) for index in range(20)]
        assert spans == pytest.approx(expected, rel=1e-13)


def test_a_v_placement_turns_on_the_last_rank_without_a_hop() -> None:
    """Neighbouring virtual stages on one rank send nothing."""
    placement = Placement(2, 2, rank=np.array([0, 1, 1, 0]), chunk=np.array([0, 0, 1, 1]), link=np.array([0, 2, 0]))
    rows = [np.array([(0, 0, 0, 0), (0, 1, 0, 0), (1, 1, 0, 0), (1, 0, 0, 0)])] * 2
    table = ActionTable.of("v", placement, rows, micro_batches=1)
    assert simulate(table, equal_times(2, 2, 1, 1, 1, hop=10)).span_s == 4 * 3 + 4 * 10


def test_hops_delay_the_receiver_and_do_not_occupy_the_sender() -> None:
    """Rank 0 runs on while its first output travels; the step waits for it twice, out and back."""
    table = table_of("F0 F1 B0 B1", "F0 F1 B0 B1")
    start, end = action_times(table, equal_times(2, 1, 1, 1, 0, hop=5))
    assert start.tolist() == [0, 1, 14, 15, 6, 7, 8, 9]
    assert end.tolist() == [1, 2, 15, 16, 7, 8, 9, 10]


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_actions_of_a_rank_never_overlap_and_fill_the_step(name: str, p: int, v: int, m: int) -> None:
    """Each action starts after the one before, lasts its time, and the last one ends the rank."""
    table = schedules.actions(name, p, v, m)
    times = random_times(np.random.default_rng(4), p, v, batch=6)
    step, (start, end) = simulate(table, times), action_times(table, times)
    kinds = np.stack([times.forward_s, times.backward_s, times.input_grad_s, times.weight_grad_s], axis=1)
    assert np.allclose(end - start, kinds[:, table.kind, table.rank_of(), table.chunk], rtol=0, atol=1e-12)
    for rank in range(p):
        mine = slice(table.rank_start[rank], table.rank_start[rank + 1])
        assert np.all(start[:, mine][:, 1:] >= end[:, mine][:, :-1])
        assert np.all(start[:, mine][:, 0] >= times.first_s[:, rank])
        assert np.array_equal(step.rank_end_s[:, rank], end[:, mine][:, -1] + times.last_s[:, rank])
    assert np.array_equal(step.span_s, step.rank_end_s.max(axis=1))
    assert {Kind.FORWARD} < set(table.kind.tolist())


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_a_single_rank_runs_first_all_its_work_and_last(name: str) -> None:
    """With p = 1 the step is first + m * t + last."""
    times = StageTimes.of([[2.0]], [[3.0]], [[1.0]], first_s=5.0, last_s=7.0, hop_s=100.0)
    assert simulate(schedules.actions(name, 1, 1, 4), times).span_s == 5 + 4 * 6 + 7


def test_leading_axes_are_kept() -> None:
    """Results have the leading axes of the times, whatever their number."""
    table = schedules.actions("1f1b", 3, 1, 4)
    flat = random_times(np.random.default_rng(5), 3, 1, batch=6)
    square = StageTimes(
        *(getattr(flat, n).reshape(2, 3, *getattr(flat, n).shape[1:]) for n in flat.__dataclass_fields__)
    )
    assert np.array_equal(simulate(table, square).span_s.ravel(), simulate(table, flat).span_s)
    assert simulate(table, square).rank_end_s.shape == (2, 3, 3)
    assert action_times(table, square)[0].shape == (2, 3, table.actions)


def test_times_of_other_ranks_or_chunks_are_refused() -> None:
    """The message gives the table's shape and that of the times."""
    with pytest.raises(StageTimesError, match=r"\(4, 1\).*got \(3, 1\)"):
        simulate(schedules.actions("1f1b", 4, 1, 4), equal_times(3, 1, 1, 1, 1))


@pytest.mark.slow
@pytest.mark.parametrize(("name", "p", "v", "m"), [("1f1b", 16, 1, 31250), ("1f1b", 2, 1, 250_000)])
def test_a_million_actions_replay(name: str, p: int, v: int, m: int) -> None:
    """Wide and narrow tables alike; how long it takes is told by tests/benchmarks/simulator.py."""
    table = schedules.schedule(name).actions.__wrapped__(p, v, m)  # type: ignore[attr-defined]
    span_s = simulate(table, equal_times(p, v, 1, 1, 1)).span_s
    assert action_graph(table).actions == 10**6
    assert span_s == 3 * (m + p - 1)


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_actions_that_last_as_long_as_their_kind_give_the_same_step(name: str, p: int, v: int, m: int) -> None:
    """Durations by action that are those of the stages start and end alike."""
    table = schedules.actions(name, p, v, m)
    times = one(random_times(np.random.default_rng(8), p, v, batch=1), 0)
    start_s, end_s = action_times(table, times)
    assert np.allclose(run_times(table, times, end_s - start_s), (start_s, end_s), rtol=1e-12, atol=1e-12)


def test_one_long_action_delays_what_waits_for_it() -> None:
    """The first backward of rank 1 takes 5 s instead of 2: everything after it is 3 s later."""
    table, times = schedules.actions("1f1b", 2, 1, 2), equal_times(2, 1, 1, 1, 1)
    plain_s, _ = action_times(table, times)
    start_s, end_s = run_times(table, times, np.array([1, 1, 2, 2, 1, 5, 1, 2]))
    assert (start_s - plain_s).tolist() == [0, 0, 3, 3, 0, 0, 3, 3]
    assert (end_s - start_s).tolist() == [1, 1, 2, 2, 1, 5, 1, 2]

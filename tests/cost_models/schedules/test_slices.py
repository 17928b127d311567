"""What holds for every schedule that cuts micro-batches into slices, equal ones or not."""

from dataclasses import replace

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules import replay
from cost_models.schedules.critical_path import PathCoefficients, critical_path
from cost_models.schedules.graph import action_graph
from cost_models.schedules.live import peak_live
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import Kind
from cost_models.schedules.times import StageTimes
from cost_models.schedules.validity import check
from tests.cost_models.schedules.cases import equal_times, one, plain_span_s, random_times, with_attention

SINGLE = [(1, 1, 2, 3), (2, 1, 1, 5), (2, 1, 6, 4), (3, 1, 4, 2), (4, 1, 5, 8), (6, 1, 3, 5), (8, 1, 4, 16)]
SHAPES = {
    "terapipe": SINGLE,
    "seq1f1b": SINGLE,
    "slimpipe": [*SINGLE, (2, 2, 3, 2), (2, 3, 1, 4), (4, 2, 2, 8), (4, 3, 3, 4)],
}
"""(p, v, m, n) to try for each sliced schedule."""
ALL = [(name, *shape) for name in schedules.SLICED for shape in SHAPES[name]]


def uneven(seed: int, p: int, v: int, batch: int) -> StageTimes:
    """Random assignments with attention that grows from slice to slice."""
    rng = np.random.default_rng(seed)
    return with_attention(rng, random_times(rng, p, v, batch))


@pytest.mark.parametrize(("name", "p", "v", "m", "n"), ALL)
def test_tables_are_valid_and_hold_every_slice(name: str, p: int, v: int, m: int, n: int) -> None:
    """The one check accepts them; backwards take the slices of a micro-batch in reverse."""
    table = schedules.actions(name, p, v, m, slices=n)
    check(table)
    assert (table.actions, table.slices, table.micro_batches) == (2 * p * v * m * n, n, m)
    mine = [action for action in table.rank_actions(0) if action.chunk == 0 and action.micro_batch == m - 1]
    assert [action.slice for action in mine if action.kind == Kind.FORWARD] == list(range(n))
    assert [action.slice for action in mine if action.kind == Kind.BACKWARD] == list(range(n))[::-1]


@pytest.mark.parametrize(("name", "p", "v", "m", "n"), ALL)
def test_a_batch_equals_a_plain_simulator(name: str, p: int, v: int, m: int, n: int) -> None:
    """Slices of unequal length included."""
    table, times = schedules.actions(name, p, v, m, slices=n), uneven(20, p, v, batch=4)
    spans = simulate(table, times).span_s
    for index in range(4):
        assert spans[index] == pytest.approx(plain_span_s(table, one(times, index)), rel=1e-12)


@pytest.mark.parametrize(("name", "p", "v", "m", "n"), ALL)
def test_both_ways_of_replaying_give_the_same_bits(
    name: str, p: int, v: int, m: int, n: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Level by level or action by action is a matter of speed only, for slices too."""
    graph = action_graph(schedules.actions(name, p, v, m, slices=n))
    (columns,) = replay.blocks(graph, uneven(21, p, v, batch=3))
    ends = []
    for narrow in (0, 10**9):
        monkeypatch.setattr(replay, "NARROW", narrow)
        ends.append(replay.end_times(graph, columns))
    assert np.array_equal(*ends)


@pytest.mark.parametrize(("name", "p", "v", "m", "n"), ALL)
def test_a_critical_path_is_as_long_as_its_step_and_a_cut_of_others(name: str, p: int, v: int, m: int, n: int) -> None:
    """Coefficients are linear in whole micro-batches and their attention."""
    table, times, others = schedules.actions(name, p, v, m, slices=n), uneven(22, p, v, 20), uneven(23, p, v, 60)
    path = critical_path(table, times)
    assert np.allclose(path.length_s(times), simulate(table, times).span_s, rtol=1e-12, atol=0)
    cut = PathCoefficients(*(getattr(path, name)[:, None] for name in path.__dataclass_fields__))
    assert np.all(cut.length_s(others) <= simulate(table, others).span_s * (1 + 1e-12))


@pytest.mark.parametrize("name", schedules.SLICED)
def test_no_bound_is_above_the_simulated_step(name: str) -> None:
    """In 3,000 random cases and more with unequal stages, slices, edges and hops; the solver's terms are weaker."""
    slack, terms_slack = [], []
    for seed, (p, v, m, n) in enumerate(SHAPES[name]):
        own, times = schedules.schedule(name, slices=n), uneven(seed, p, v, batch=500)
        span_s = simulate(own.actions(p, v, m), times).span_s
        bound_s, terms_s = own.lower_bound_s(m, times), own.bound_terms(m, times).value_s()
        assert np.all(bound_s <= span_s * (1 + 1e-12))
        assert np.all(terms_s <= bound_s * (1 + 1e-12))
        assert np.all(terms_s > 0)
        slack.append(1 - bound_s / span_s)
        terms_slack.append(1 - terms_s / span_s)
    assert np.size(slack) >= 3000
    print(f"{name}: mean slack {np.mean(slack):.2%}, of the terms {np.mean(terms_slack):.2%}")
    assert np.mean(slack) < 0.15


@pytest.mark.parametrize(("name", "plain"), [("terapipe", "gpipe"), ("seq1f1b", "1f1b"), ("slimpipe", "slimpipe")])
@pytest.mark.parametrize(("p", "m"), [(1, 2), (3, 4), (8, 5)])
def test_one_slice_is_the_schedule_without_slices(name: str, plain: str, p: int, m: int) -> None:
    """TeraPipe is then GPipe, Seq1F1B is 1F1B, and attention within a micro-batch changes nothing, not a bit."""
    times = uneven(24, p, 1, batch=5)
    whole = replace(times, forward_attention_s=0 * times.forward_s, backward_attention_s=0 * times.forward_s)
    sliced = simulate(schedules.actions(name, p, 1, m, slices=1), times).span_s
    assert np.array_equal(sliced, simulate(schedules.actions(plain, p, 1, m), whole).span_s)


@pytest.mark.parametrize(
    ("name", "n", "extra"),
    [
        ("slimpipe", 8, 0.37),
        ("slimpipe", 16, 0.22),
        ("slimpipe", 32, 0.13),
        ("seq1f1b", 8, 0.73),
        ("seq1f1b", 16, 0.47),
        ("seq1f1b", 32, 0.26),
    ],
)
def test_unequal_slices_lengthen_the_bubble(name: str, n: int, extra: float) -> None:
    """p = 8, m = 4, 60 % attention: the bubble by work, 7 / (4 n) were slices equal (arXiv 2504.14519, section 4)."""
    own, whole = schedules.schedule(name, slices=n), np.ones((8, 1))
    equal = StageTimes.of(whole, whole, whole)
    growing = StageTimes.of(whole, 2 * whole, 0 * whole, forward_attention_s=0.6, backward_attention_s=1.2)
    table = own.actions(8, 1, 4)
    assert simulate(table, equal).span_s / 12 - 1 == pytest.approx(7 / (4 * n), rel=1e-12)
    assert simulate(table, growing).span_s / 12 - 1 == pytest.approx(extra, abs=0.006)
    assert own.lower_bound_s(4, growing) > own.lower_bound_s(4, equal)


@pytest.mark.parametrize(("name", "p", "v", "m", "n"), ALL)
def test_live_slices_are_those_of_the_published_peak(name: str, p: int, v: int, m: int, n: int) -> None:
    """In chunk-slices: all of TeraPipe, n + p - 1 - i of Seq1F1B, n v + 2 (p - 1 - i) of SlimPipe."""
    live = {
        "terapipe": [m * n] * p,
        "seq1f1b": [min(m * n, n + p - 1 - i) for i in range(p)],
        "slimpipe": [min(m * n * v, n * v + 2 * (p - 1 - i)) for i in range(p)],
    }
    assert peak_live(schedules.actions(name, p, v, m, slices=n)).tolist() == live[name]


@pytest.mark.parametrize("name", schedules.SLICED)
def test_bounds_take_a_column_of_micro_batches(name: str) -> None:
    """Each assignment may have its own number of micro-batches."""
    own, m, times = schedules.schedule(name, slices=4), np.array([4, 8, 12, 31]), uneven(25, 4, 1, batch=4)
    terms = own.bound_terms(m, times).value_s()
    lower, closed = own.lower_bound_s(m, times), own.closed_form_s(m, times)
    for row in range(4):
        same = one(times, row)
        assert terms[row] == own.bound_terms(int(m[row]), same).value_s()
        assert lower[row] == own.lower_bound_s(int(m[row]), same)
        assert closed[row] == own.closed_form_s(int(m[row]), same)


@pytest.mark.parametrize("name", schedules.SLICED)
def test_hops_are_paid_as_published(name: str) -> None:
    """p = 8, m = 4, n = 16, a hop of 5 % of a slice: Seq1F1B loses 0.31 F, SlimPipe's deeper warm-up 0.04 F."""
    own = schedules.schedule(name, slices=16)
    table = own.actions(8, 1, 4)
    spans = [float(simulate(table, equal_times(8, 1, 1, 1, 1, hop=hop)).span_s) for hop in (0.0, 0.05 / 16)]
    assert spans[1] - spans[0] == pytest.approx({"seq1f1b": 0.31}.get(name, 0.04), abs=0.005)

import numpy as np
import pytest

from cost_models.schedules import interleaved
from cost_models.schedules.errors import IllegalScheduleError, InvalidTableError
from cost_models.schedules.live import peak_live
from cost_models.schedules.simulate import simulate
from cost_models.schedules.table import ActionTable, Kind
from cost_models.schedules.times import StageTimes
from cost_models.schedules.validity import check
from tests.cost_models.schedules.cases import equal_times, random_times

LEGAL = [(p, v, m) for p in (2, 3, 4, 6, 8) for v in (2, 4) for m in range(1, 17) if m % p == 0]


@pytest.mark.parametrize(("p", "v", "m"), LEGAL)
def test_the_bubble_of_equal_stages_is_divided_by_the_chunks(p: int, v: int, m: int) -> None:
    """m t + (p - 1) t / v; closed form and bound are exact."""
    times = equal_times(p, v, 1.0, 1.25, 0.5)
    expected = m * v * 2.75 + (p - 1) * 2.75
    assert simulate(interleaved.actions(p, v, m), times).span_s == pytest.approx(expected, rel=1e-13)
    assert interleaved.closed_form_s(m, times) == pytest.approx(expected, rel=1e-13)
    assert interleaved.lower_bound_s(m, times) == pytest.approx(expected, rel=1e-13)


@pytest.mark.parametrize(("p", "v", "m"), LEGAL)
def test_only_one_trip_through_all_stages_pays_hops(p: int, v: int, m: int) -> None:
    """2 (p v - 1) hops whatever m, for hops no longer than a chunk's forward or backward."""
    for hop in (0.125, 1.0):
        times = equal_times(p, v, 1.0, 1.5, 0.5, hop=hop)
        extra_s = simulate(interleaved.actions(p, v, m), times).span_s - 3 * (m * v + p - 1)
        assert extra_s == 2 * (p * v - 1) * hop
        assert interleaved.closed_form_s(m, times) == 3 * (m * v + p - 1) + extra_s
        assert interleaved.lower_bound_s(m, times) == 3 * (m * v + p - 1) + extra_s


@pytest.mark.parametrize(("p", "v", "m"), LEGAL)
def test_any_edges_are_exact_for_equal_stages(p: int, v: int, m: int) -> None:
    """First and last work that differs from rank to rank."""
    edges = 8 * np.random.default_rng(17).random((2, 40, p))
    whole = np.ones((p, v))
    times = StageTimes.of(whole, whole, whole, first_s=edges[0], last_s=edges[1], hop_s=0.125)
    span_s = simulate(interleaved.actions(p, v, m), times).span_s
    assert np.allclose(interleaved.closed_form_s(m, times), span_s, rtol=1e-12, atol=0)


GROUPED = [
    (p, v, m, group)
    for p in (2, 3, 4, 6, 8)
    for v in (2, 3)
    for m in range(1, 17)
    for group in range(1, m + 1)
    if interleaved.legal(p, v, m, group_size=group)
]


@pytest.mark.parametrize("p", [2, 3, 4, 6, 8])
def test_groups_of_any_legal_size_keep_the_bubble_and_hide_the_hops(p: int) -> None:
    """(p - 1) t / v with m >= p, (p v + m - 1 - m v) t / v with fewer, t of all chunks; hops cost what N leaves of
    them: 2 (p v - 1) at N = p, 2 (p - 1) from 2 p on if the last group has as many."""
    shapes = [shape for shape in GROUPED if shape[0] == p]
    assert len(shapes) > 30
    for _, v, m, group in shapes:
        table = interleaved.actions(p, v, m, group_size=group)
        check(table)
        last = m % group or group
        bubble = 3 * (p - 1 if m >= p else p * v + m - 1 - m * v)
        for f, b, w, hop in ((1, 1, 1, 0), (1, 1.2, 0.8, 0), (1, 1.2, 0.8, 0.25), (1, 1.2, 0.8, 1)):
            times = equal_times(p, v, f, b, w, hop=hop)
            waits = [max(0, p * (chunk + hop) - size * chunk) for chunk, size in ((f, group), (b + w, last))]
            alone = [max(0, p - m) * chunk for chunk in (f, b + w)]
            hops = 2 * (p - 1) * hop + (v - 1) * (sum(waits) - sum(alone))
            expected = 3 * m * v + bubble + hops
            assert simulate(table, times).span_s == pytest.approx(expected, rel=1e-12)
            assert interleaved.closed_form_s(m, times, group_size=group) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize(("group", "hops"), [(4, 2 * (4 * 3 - 1)), (8, 2 * (4 - 1)), (16, 2 * (4 - 1))])
def test_twice_as_many_in_a_group_as_ranks_hide_the_hops(group: int, hops: int) -> None:
    """p = 4, v = 3, m = 16, hops of a quarter of a chunk's forward."""
    times = equal_times(4, 3, 1, 1.5, 0.5, hop=0.25)
    span_s = simulate(interleaved.actions(4, 3, 16, group_size=group), times).span_s
    assert span_s == 3 * (16 * 3 + 3) + hops * 0.25


@pytest.mark.parametrize(("p", "v", "m", "group"), GROUPED[::7])
def test_a_larger_group_keeps_more_chunks(p: int, v: int, m: int, group: int) -> None:
    """Rank i keeps min(m v, (v - 1) N + 2 (p - 1 - i) + 1)."""
    expected = [min(m * v, (v - 1) * group + 2 * (p - 1 - i) + 1) for i in range(p)]
    assert peak_live(interleaved.actions(p, v, m, group_size=group)).tolist() == expected


def waits_for_ever(table: ActionTable) -> bool:
    """Whether the table is refused because ranks wait for each other."""
    try:
        check(table)
    except InvalidTableError as error:
        return error.rule == "no deadlock"
    return False


def test_every_other_group_size_has_a_longer_bubble_or_waits_for_ever() -> None:
    """The other side of the condition: N < p, or a rest of 1 to p - 1; fewer micro-batches than ranks in two groups."""
    longer, stuck = [], 0
    for p, v in ((2, 2), (3, 2), (4, 3), (8, 2)):
        times = equal_times(p, v, 1, 1, 1)
        for m in range(2, 17):
            for group in range(1, m):
                if interleaved.legal(p, v, m, group_size=group):
                    continue
                table = interleaved.table(p, v, m, group)
                if waits_for_ever(table):
                    stuck += 1
                else:
                    longer.append((float(simulate(table, times).span_s) - 3 * m * v) / (3 * (p - 1)))
    assert min(longer) > 1.05
    assert len(longer) > 100
    assert stuck > 100


def test_no_bound_of_a_group_size_is_above_the_simulated_step() -> None:
    """In thousands of random cases with unequal stages, edges and hops; the solver's terms are the weaker bound."""
    slack = []
    for seed, (p, v, m, group) in enumerate(GROUPED[::13]):
        times = random_times(np.random.default_rng(seed), p, v, batch=100)
        span_s = simulate(interleaved.actions(p, v, m, group_size=group), times).span_s
        bound_s = interleaved.lower_bound_s(m, times, group_size=group)
        assert np.all(bound_s <= span_s * (1 + 1e-12))
        assert np.all(interleaved.bound_terms(m, times, group_size=group).value_s() <= bound_s * (1 + 1e-12))
        slack.append(1 - bound_s / span_s)
    assert np.size(slack) >= 3000
    print(f"interleaved, any group: mean slack {np.mean(slack):.2%}")
    assert np.mean(slack) < 0.2


def test_groups_and_what_is_left_go_through_the_chunks() -> None:
    """Llama 3's figure 6: 4 ranks, 8 stages, 10 micro-batches in groups of 5; and a rest of p."""
    forwards = [
        (action.chunk, action.micro_batch)
        for action in interleaved.actions(4, 2, 10, group_size=5).rank_actions(0)
        if action.kind == Kind.FORWARD
    ]
    assert forwards == [(c, 5 * g + j) for g in range(2) for c in range(2) for j in range(5)]
    rest = interleaved.actions(2, 2, 5, group_size=3).rank_actions(1)
    assert [(a.chunk, a.micro_batch) for a in rest if a.kind == Kind.BACKWARD][6:] == [(1, 3), (1, 4), (0, 3), (0, 4)]


def test_longer_hops_cost_more_than_one_trip() -> None:
    """The limit of the closed form: a hop longer than a chunk's forward is not hidden by the warm-up."""
    times = equal_times(4, 2, 1.0, 1.5, 0.5, hop=2.0)
    assert simulate(interleaved.actions(4, 2, 16), times).span_s > interleaved.closed_form_s(16, times)


def test_the_order_is_that_of_megatron() -> None:
    """p = 2, v = 2, m = 4: groups of p micro-batches a chunk, (v - 1) p + 2 (p - 1 - i) forwards to warm up."""
    table = interleaved.actions(2, 2, 4)
    orders = [
        " ".join(f"{'FB'[kind]}{chunk}.{micro_batch}" for kind, chunk, micro_batch, _ in table.rank_actions(rank))
        for rank in range(2)
    ]
    assert orders[0] == "F0.0 F0.1 F1.0 F1.1 F0.2 B1.0 F0.3 B1.1 F1.2 B0.0 F1.3 B0.1 B1.2 B1.3 B0.2 B0.3"
    assert orders[1] == "F0.0 F0.1 F1.0 B1.0 F1.1 B1.1 F0.2 B0.0 F0.3 B0.1 F1.2 B1.2 F1.3 B1.3 B0.2 B0.3"


@pytest.mark.parametrize(("p", "m", "group"), [(4, 8, 3), (4, 8, 9), (4, 9, 4), (4, 3, 2), (4, 8, 0)])
def test_illegal_groups_are_refused(p: int, m: int, group: int) -> None:
    """The message tells the group size too."""
    assert not interleaved.legal(p, 2, m, group_size=group)
    with pytest.raises(IllegalScheduleError, match=f"a group size .* micro-batches {m}, group size {group}"):
        interleaved.actions(p, 2, m, group_size=group)


@pytest.mark.parametrize(("p", "v", "m"), [(1, 2, 2), (2, 1, 2), (4, 2, 6), (4, 2, 0), (0, 2, 2)])
def test_illegal_sizes_are_refused(p: int, v: int, m: int) -> None:
    """The message names what is needed and what was given."""
    assert not interleaved.legal(p, v, m)
    with pytest.raises(
        IllegalScheduleError, match=f"interleaved needs .* got ranks {p}, chunks {v}, micro-batches {m}"
    ):
        interleaved.actions(p, v, m)


def test_legality_works_on_columns() -> None:
    """A search asks for many layouts at once."""
    legal = interleaved.legal(np.array([1, 2, 4, 4]), np.array([2, 2, 2, 2]), np.array([4, 4, 6, 8]))
    assert legal.tolist() == [False, True, False, True]

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules import v_half, v_min
from cost_models.schedules.live import live_chunks, live_history, peak_live, split_histories, split_history
from cost_models.schedules.table import ActionTable, Kind
from cost_models.schedules.whole_backward import first_stages
from tests.cost_models.schedules.cases import ALL, SHAPES, table_of


def live_by_counting(table: ActionTable, rank: int) -> list[list[int]]:
    """Live vectors during each action of a rank, counted one by one."""
    live, seen = [0] * table.chunks, []
    for kind, chunk, _, _ in table.rank_actions(rank):
        live[chunk] += kind == Kind.FORWARD
        seen.append(list(live))
        live[chunk] -= kind in (Kind.BACKWARD, Kind.WEIGHT_GRAD)
    return seen


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["gpipe"])
def test_gpipe_keeps_every_micro_batch(p: int, v: int, m: int) -> None:
    """All m are live on all ranks."""
    assert live_chunks(schedules.actions("gpipe", p, v, m)).tolist() == [[[m]]] * p


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["1f1b"])
def test_1f1b_keeps_as_many_as_ranks_are_left(p: int, v: int, m: int) -> None:
    """Rank i keeps min(m, p - i)."""
    assert live_chunks(schedules.actions("1f1b", p, v, m)).tolist() == [[[min(m, p - i)]] for i in range(p)]


@pytest.mark.parametrize(("p", "v", "m"), SHAPES["interleaved"])
def test_interleaving_keeps_more(p: int, v: int, m: int) -> None:
    """Rank i keeps min(m v, (v - 1) p + 2 (p - 1 - i) + 1) chunks of a micro-batch."""
    expected = [min(m * v, (v - 1) * p + 2 * (p - 1 - i) + 1) for i in range(p)]
    assert peak_live(schedules.actions("interleaved", p, v, m)).tolist() == expected


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_the_maximal_vectors_give_the_peak_for_chunks_of_any_size(name: str, p: int, v: int, m: int) -> None:
    """Nothing is lost by keeping the maximal vectors only, and none of them is superfluous."""
    table = schedules.actions(name, p, v, m)
    live = live_chunks(table)
    saved = np.random.default_rng(10).random((50, 1, v)) ** 4
    for rank in range(p):
        seen = np.array(live_by_counting(table, rank))
        assert np.array_equal((live[rank] * saved).sum(-1).max(-1), (seen * saved).sum(-1).max(-1))
        kept = live[rank][live[rank].any(axis=1)]
        reaches = np.all(kept[:, None] >= kept[None], axis=-1)
        assert np.array_equal(reaches, np.eye(len(kept), dtype=bool))


def test_a_split_backward_frees_at_its_weight_gradient() -> None:
    """Delaying weight gradients keeps activations alive."""
    assert peak_live(table_of("F0 I0 F1 I1 W0 W1")).tolist() == [2]
    assert peak_live(table_of("F0 I0 W0 F1 I1 W1")).tolist() == [1]


@pytest.mark.parametrize(("name", "p", "v", "m"), ALL)
def test_both_parts_of_the_live_vectors_add_up_to_them(name: str, p: int, v: int, m: int) -> None:
    """What waits for its input gradient and what waits for its weight gradient is all that is live, at every action."""
    table = schedules.actions(name, p, v, m)
    for rank in range(p):
        before, after = split_history(table, rank)
        assert np.array_equal(before + after, live_by_counting(table, rank))
        mine = table.kind[table.rank_start[rank] : table.rank_start[rank + 1]]
        assert np.array_equal((before + after)[mine == Kind.FORWARD], live_history(table, rank))
        assert before.min() >= 0
        assert after.min() >= 0


def test_a_micro_batch_changes_parts_when_its_input_gradient_has_ended() -> None:
    """During its own action it still belongs to the part before; a whole backward never enters the second part."""
    before, after = split_history(table_of("F0 I0 F1 W0 B1"), 0)
    assert before[:, 0].tolist() == [1, 1, 1, 1, 1]
    assert after[:, 0].tolist() == [0, 0, 1, 1, 0]


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [3, 8, 16])
def test_zb_h1_keeps_as_much_as_rank_0_of_1f1b(p: int, m: int) -> None:
    """All ranks keep min(m, p); with m >= p rank i has p - i before and i after their input gradient at once."""
    table = schedules.actions("zb-h1", p, 1, m)
    assert peak_live(table).tolist() == [min(m, p)] * p
    for rank in range(p if m >= p else 0):
        before, after = split_history(table, rank)
        for saved in (0.1, 0.5, 0.9):
            assert (before + saved * after).max() == pytest.approx(p - rank + saved * rank)


@pytest.mark.parametrize("p", [1, 2, 4, 8])
@pytest.mark.parametrize("m", [3, 8, 16])
def test_zb_h2_keeps_twice_as_much(p: int, m: int) -> None:
    """All ranks keep min(m, 2p - 1)."""
    assert peak_live(schedules.actions("zb-h2", p, 1, m)).tolist() == [min(m, 2 * p - 1)] * p


@pytest.mark.parametrize("p", [2, 3, 4, 8])
def test_v_schedules_keep_the_same_on_all_ranks(p: int) -> None:
    """In chunks, two a micro-batch: ZB-V 2p, DualPipeV 2p + 1, V-Half p + 2, V-Min 2p / 3 + 2 rounded to even."""
    m = 3 * p
    assert peak_live(schedules.actions("zb-v", p, 2, m)).tolist() == [2 * p] * p
    assert peak_live(schedules.actions("dualpipe-v", p, 2, m)).tolist() == [2 * p + 1] * p
    assert peak_live(schedules.actions("v-half", p, 2, m)).tolist() == [p + 2] * p
    assert peak_live(schedules.actions("v-min", p, 2, m)).tolist() == [2 * round(p / 3) + 2] * p


@pytest.mark.parametrize("p", range(2, 17))
def test_controlled_memory_is_never_exceeded(p: int) -> None:
    """Neither the squeezed ends nor few micro-batches take more chunks than the peak, and the cap is reached."""
    for m in (1, 2, 5, 17):
        for schedule in (v_half, v_min):
            peak = peak_live(schedule.actions(p, 2, m)).max()
            assert peak <= schedule.peak_chunks(p)
            assert peak == min(2 * m, schedule.peak_chunks(p))


@pytest.mark.parametrize("p", [2, 4, 8])
def test_dualpipe_keeps_one_micro_batch_more_than_ranks(p: int) -> None:
    """p + 1 on all ranks, of two stages."""
    assert peak_live(schedules.actions("dualpipe", p, 2, 2 * p + 2)).tolist() == [p + 1] * p


def test_rows_are_padded_with_zeros() -> None:
    """Ranks with fewer maximal vectors are filled up."""
    live = live_chunks(table_of("F0.0 F1.0 B1.0 B0.0 F0.1 F1.1 B1.1 B0.1", v=2))
    assert live.tolist() == [[[1, 1]]]
    uneven = live_chunks(schedules.actions("interleaved", 4, 2, 8))
    assert any((rank.sum(axis=1) == 0).any() for rank in uneven)


@pytest.mark.parametrize("name", ["zb-h1", "zb-v", "dualpipe-v"])
def test_split_histories_are_those_of_each_rank(name: str) -> None:
    """Ranks with fewer actions, where some backwards are not split, are filled up with zeros."""
    table = schedules.actions(name, 3, 1 if name == "zb-h1" else 2, 8)
    before, after = split_histories(table)
    for rank in range(3):
        for whole, own in zip((before, after), split_history(table, rank), strict=True):
            assert np.array_equal(whole[rank, : len(own)], own)
            assert not whole[rank, len(own) :].any()


@pytest.mark.parametrize("name", ["zb-h2", "zb-v", "dualpipe"])
def test_nothing_waits_on_a_first_stage_that_is_not_split(name: str) -> None:
    """All of it lacks its whole backward, as much as before together; elsewhere the same waits."""
    table = schedules.actions(name, 4, 1 if name == "zb-h2" else 2, 8)
    (before, after), (busy, waiting) = (split_histories(table, splits_first_stage=each) for each in (True, False))
    assert np.array_equal(before + after, busy + waiting)
    first = first_stages(table.placement)
    changed = (after != waiting).any(axis=1)
    assert np.array_equal(changed, first)
    assert not waiting.transpose(0, 2, 1)[first].any()

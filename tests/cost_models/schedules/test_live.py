import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.live import live_chunks, peak_live
from cost_models.schedules.table import ActionTable, Kind
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


def test_rows_are_padded_with_zeros() -> None:
    """Ranks with fewer maximal vectors are filled up."""
    live = live_chunks(table_of("F0.0 F1.0 B1.0 B0.0 F0.1 F1.1 B1.1 B0.1", v=2))
    assert live.tolist() == [[[1, 1]]]
    uneven = live_chunks(schedules.actions("interleaved", 4, 2, 8))
    assert any((rank.sum(axis=1) == 0).any() for rank in uneven)

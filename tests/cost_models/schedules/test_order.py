import pytest

from cost_models.schedules.order import in_groups, single_chunk, sliced, warm_up_then_alternate


@pytest.mark.parametrize(
    ("warm_up", "expected"),
    [(0, "F0 B0 F1 B1 F2 B2"), (1, "F0 F1 B0 F2 B1 B2"), (2, "F0 F1 F2 B0 B1 B2"), (3, "F0 F1 F2 B0 B1 B2")],
)
def test_warm_up_forwards_run_first_then_forward_and_backward_alternate(warm_up: int, expected: str) -> None:
    """`warm_up` forwards, pairs of forward and backward, and the backwards that are left."""
    units = single_chunk(3)
    rows = warm_up_then_alternate(units, units, warm_up)
    assert " ".join(f"{'FB'[kind]}{micro_batch}" for kind, _, micro_batch, _ in rows) == expected


def test_a_smaller_group_is_left_over() -> None:
    """Groups of two of three units, through two chunks each."""
    assert in_groups(2, 3, 2).tolist() == [[0, 0], [0, 1], [1, 0], [1, 1], [0, 2], [1, 2]]


def test_backwards_take_chunks_and_slices_in_reverse() -> None:
    """Two micro-batches of two slices, two slices a group."""
    forwards, backwards = sliced(2, 2, 2, 2)
    assert forwards[:4].tolist() == [[0, 0, 0], [0, 0, 1], [1, 0, 0], [1, 0, 1]]
    assert backwards[:4].tolist() == [[1, 0, 1], [1, 0, 0], [0, 0, 1], [0, 0, 0]]
    assert set(forwards[4:, 1].tolist()) == set(backwards[4:, 1].tolist()) == {1}

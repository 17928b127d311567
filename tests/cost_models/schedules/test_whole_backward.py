"""Backwards that are not split on the first stage: where that is, and what a step takes then."""

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules.simulate import action_times
from cost_models.schedules.table import Kind, looped_placement, two_way_placement, v_placement
from cost_models.schedules.times import StageTimes
from cost_models.schedules.whole_backward import first_stages, with_whole_backwards


def test_the_first_stage_of_every_copy() -> None:
    """Chunk 0 of rank 0, whether chunks go round or down and back; of two copies also where the second begins."""
    for place in (looped_placement(3, 2), v_placement(3)):
        assert np.argwhere(first_stages(place)).tolist() == [[0, 0]]
    assert np.argwhere(first_stages(two_way_placement(3))).tolist() == [[0, 0], [2, 1]]


def test_work_moves_and_none_is_lost() -> None:
    """Nothing is left for the input gradient of a marked chunk; other chunks and other columns are as they were."""
    seconds = {name: np.arange(1.0, 5.0).reshape(2, 2) for name in ("forward_s", "input_grad_s", "weight_grad_s")}
    moved = with_whole_backwards(seconds, np.array([[True, False], [False, False]]))
    assert moved["input_grad_s"].tolist() == [[0.0, 2.0], [3.0, 4.0]]
    assert moved["weight_grad_s"].tolist() == [[2.0, 2.0], [3.0, 4.0]]
    assert moved["forward_s"] is seconds["forward_s"]
    assert seconds["input_grad_s"].tolist() == [[1.0, 2.0], [3.0, 4.0]]


@pytest.mark.parametrize("name", sorted(set(schedules.SPLIT) - {"dualpipe"}))
def test_a_step_works_as_much_and_whole_backwards_stay(name: str) -> None:
    """Each rank is as busy as before; of the first stage an INPUT_GRAD takes no time, a BACKWARD what it took."""
    pp, vpp, m = 3, 2 if name in schedules.V_SHAPED else 1, 8
    table = schedules.actions(name, pp, vpp, m)
    cells = {
        each: np.full((pp, vpp), seconds)
        for each, seconds in (("forward_s", 1.0), ("input_grad_s", 1.25), ("weight_grad_s", 0.75))
    }
    plain = StageTimes.of(**cells)
    whole = StageTimes.of(**with_whole_backwards(cells, first_stages(table.placement)))
    assert np.array_equal(plain.work_s, whole.work_s)
    start_s, end_s = action_times(table, whole)
    assert end_s.max() >= plain.work_s.max() * m
    on_first = (table.rank_of() == 0) & (table.chunk == 0)
    lasts = {kind: (end_s - start_s)[on_first & (table.kind == kind)] for kind in Kind}
    assert len(lasts[Kind.INPUT_GRAD])
    assert lasts[Kind.INPUT_GRAD] == pytest.approx(0.0, abs=1e-9)
    for kind in (Kind.BACKWARD, Kind.WEIGHT_GRAD):
        assert lasts[kind] == pytest.approx(2.0)

"""Layers of pipeline chunks."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cost_models.schedules.table import looped_placement, v_placement
from planner.evaluate.errors import InvalidRunError
from planner.evaluate.split import chunk_sizes, read_sizes


@given(pp=st.integers(1, 16), vpp=st.integers(1, 8), layers=st.integers(1, 200))
def test_every_layer_is_dealt(pp, vpp, layers):
    """Chunks add up to the model, and differ by no more than the ends' two layers; too few layers are refused."""
    if layers < max(pp, pp * vpp - 2):
        with pytest.raises(InvalidRunError, match="leave a layer"):
            chunk_sizes(layers, looped_placement(pp, vpp))
        return
    sizes = chunk_sizes(layers, looped_placement(pp, vpp))
    assert sizes.shape == (pp, vpp)
    assert sizes.sum() == layers
    assert sizes.min() >= 0
    assert np.ptp(sizes) <= 2


def test_the_ends_count_as_layers():
    """46 layers on 16 stages: one less on the first and the last, as zero-bubble runs have it."""
    assert chunk_sizes(46, looped_placement(16, 1)).reshape(-1).tolist() == [2, *[3] * 14, 2]


def test_engines_that_fill_stages_leave_the_last_one_short():
    """78 layers on 12 stages: 7 on all but the last; evenly where the ends make up for the rest, or a stage is left."""
    assert chunk_sizes(78, looped_placement(12, 1), fills=True).reshape(-1).tolist() == [*[7] * 11, 1]
    assert (
        chunk_sizes(46, looped_placement(16, 1), fills=True).tolist()
        == chunk_sizes(46, looped_placement(16, 1)).tolist()
    )
    assert (
        chunk_sizes(13, looped_placement(12, 1), fills=True).tolist()
        == chunk_sizes(13, looped_placement(12, 1)).tolist()
    )


def test_sizes_can_be_given():
    """One number a stage or a chunk, repeats allowed; anything else is refused."""
    assert read_sizes("9, 2*10, 9") == (9, 10, 10, 9)
    assert chunk_sizes(38, looped_placement(4, 1), read_sizes("9,10,10,9")).reshape(-1).tolist() == [9, 10, 10, 9]
    assert chunk_sizes(10, looped_placement(2, 2), (1, 2, 3, 4)).tolist() == [[1, 3], [2, 4]]
    assert read_sizes("") == ()
    with pytest.raises(InvalidRunError, match="stage_layers"):
        read_sizes("9,ten")
    with pytest.raises(InvalidRunError, match="add up to 38"):
        chunk_sizes(38, looped_placement(4, 1), (9, 9, 9, 9))


def test_a_v_has_both_ends_on_its_first_rank():
    """14 layers on four ranks: one less at both ends, which rank 0 holds; chunks can be given in the model's order."""
    assert chunk_sizes(14, v_placement(4)).tolist() == [[1, 1], [2, 2], [2, 2], [2, 2]]
    assert chunk_sizes(10, v_placement(2), (1, 2, 3, 4)).tolist() == [[1, 4], [2, 3]]
    assert chunk_sizes(10, v_placement(2), (4, 6)).tolist() == [[2, 2], [3, 3]]

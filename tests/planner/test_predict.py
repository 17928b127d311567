"""Rows to seconds and bytes: gathered columns, sums over chunks, no negative seconds."""

import numpy as np
import pytest

from planner.layout_costs import LayoutCosts
from planner.options import chunk_rows, positions, stage_options
from planner.predict import MICRO_BATCH_OUTPUTS, OUTPUTS, CostModel, padded_vocab
from planner.space import layouts, meshes
from tests.oracles.spaces import NO_OVERLAP, SLOW_NETWORK, UNFUSED, Space

SPACES = [
    Space(4, 7, 4, 0.4, schedule="interleaved"),
    Space(4, 7, 4, 1.0, schedule="interleaved", gpus_per_node=1, changes=SLOW_NETWORK + NO_OVERLAP + UNFUSED),
]


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_stages_are_the_sums_of_their_chunks(space: Space) -> None:
    """Seconds of a micro-batch add up over chunks, whatever is recomputed, sharded and exchanged."""
    request = space.request()
    model = CostModel(request)
    costs = LayoutCosts.of(model, layouts(request, meshes(request)))
    pp = costs.layouts["pp"][:, None]
    exists = np.arange(int(pp.max())) < pp
    options = stage_options(model, costs, positions(np.where(exists, 3, 0), np.where(exists, 6, -1)))
    vpp = options["vpp"]
    repeated = {name: np.repeat(column, vpp) for name, column in options.items()}
    chunk = np.arange(vpp.sum()) - np.repeat(np.cumsum(vpp) - vpp, vpp)
    parts = model.stages(costs, chunk_rows(repeated, chunk), "chunk")
    assert len(vpp) > 50
    for name in MICRO_BATCH_OUTPUTS:
        total = np.add.reduceat(parts[name], np.cumsum(vpp) - vpp)
        assert np.allclose(total, options[name], rtol=1e-12, atol=0)


@pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)
def test_no_output_is_negative_and_groups_agree(space: Space) -> None:
    """Every group of outputs gives the numbers of the whole; causes add up to the bytes of the device."""
    request = space.request()
    model = CostModel(request)
    costs = LayoutCosts.of(model, layouts(request, meshes(request)))
    pp = costs.layouts["pp"][:, None]
    exists = np.arange(int(pp.max())) < pp
    options = stage_options(model, costs, positions(np.where(exists, 3, 0), np.where(exists, 6, -1)))
    everything = model.stages(costs, options, "all")
    assert all(np.all(column >= 0) for column in everything.values())
    for group, names in OUTPUTS.items():
        for name, column in model.stages(costs, options, group).items():
            assert np.allclose(column, everything[name], rtol=1e-12, atol=0), (group, name)
        assert group == "all" or names
    parts = ("compute_s", "tensor_parallel_s", "recompute_s", "exchange_s")
    total = sum(everything[name] for name in MICRO_BATCH_OUTPUTS)
    assert np.allclose(sum(everything[name] for name in parts), total, rtol=1e-9)


def test_columns_travel_with_the_layouts() -> None:
    """Taking rows and adding columns keeps what was known of each layout."""
    request = Space(4, 4, 4, 0.4).request()
    model = CostModel(request)
    costs = LayoutCosts.of(model, layouts(request, meshes(request)))
    rows = np.array([5, 2])
    few = costs.with_columns(mark=np.arange(len(costs))).take(rows)
    assert few.layouts["mark"].tolist() == [5, 2]
    assert few.unit_s["layer"].tolist() == costs.unit_s["layer"][rows].tolist()
    assert np.allclose(costs.unit_s["layer"], model.unit_s(costs.layouts, "layer"), rtol=1e-12)
    assert len(few) == 2


def test_communicators_count_groups_of_several_ranks() -> None:
    """One for each degree above one, and one for the world."""
    request = Space(4, 4, 4, 0.4).request()
    columns = layouts(request, meshes(request))
    costs = LayoutCosts.of(CostModel(request), columns)
    for row in range(len(costs)):
        degrees = [int(columns[name][row]) for name in ("tp", "pp", "dp_shard", "dp_replicate", "world")]
        assert costs.communicators[row] == sum(degree > 1 for degree in degrees)


@pytest.mark.parametrize(
    ("vocab", "multiple", "tp", "padded"), [(50257, 128, 1, 50304), (50257, 128, 8, 51200), (128256, 1, 2, 128256)]
)
def test_the_vocabulary_is_padded_to_a_multiple(vocab: int, multiple: int, tp: int, padded: int) -> None:
    """Of `multiple` times tp, as Megatron does."""
    assert padded_vocab(vocab, multiple, tp) == padded

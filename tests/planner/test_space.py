"""The space holds every legal layout and no other."""

import numpy as np
import pytest

from cost_models.schedules import actions
from planner import rules
from planner.space import (
    LAYOUT_FIELDS,
    SCHEDULES,
    chunk_layers,
    divisors,
    layouts,
    meshes,
    one_factor_away,
)
from tests.oracles.brute_force import chunk_sizes, legal_layouts
from tests.oracles.spaces import ODD_HEADS, SPACES, Space

SEVERAL = [
    *SPACES[::4],
    Space(12, 3, 12, 0.5, gpus_per_node=4),
    Space(6, 5, 4, 0.5, gpus_per_node=1, changes=ODD_HEADS),
]
EACH = pytest.mark.parametrize("space", SEVERAL, ids=lambda space: space.name)


@EACH
def test_every_legal_layout_is_listed_once(space: Space) -> None:
    """The same layouts as by plain loops, strides and all."""
    request = space.request()
    columns = layouts(request, meshes(request))
    expected = legal_layouts(request)
    assert set(columns) == set(expected[0])
    rows = [tuple(int(columns[name][row]) for name in columns) for row in range(len(columns["pp"]))]
    assert len(set(rows)) == len(rows)
    assert set(rows) == {tuple(row[name] for name in columns) for row in expected}


@EACH
def test_no_layout_breaks_a_rule(space: Space) -> None:
    """Every rule holds on every row, and every schedule has a table for it."""
    request = space.request()
    columns = layouts(request, meshes(request))
    model = request.model
    known = {
        "gpus": request.cluster.gpus,
        "layers": model.layers,
        "heads": model.heads,
        "kv_heads": model.kv_heads,
        "ffn": model.ffn,
        "seq_len": request.workload.seq_len,
        "global_batch": request.workload.global_batch,
    }
    assert np.all(rules.legal({**known, **columns}))
    assert set(LAYOUT_FIELDS) <= set(columns)
    for schedule, pp, vpp, m in zip(
        *(columns[name].tolist() for name in ("schedule", "pp", "vpp", "num_microbatches")), strict=True
    ):
        assert actions(SCHEDULES[schedule], pp, vpp, m).ranks == pp


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_chunks_share_the_layers_as_evenly_as_they_go(pp: int) -> None:
    """Sizes differ by one at most, add up, and are small where the embedding or the head is."""
    for vpp in range(1, 6):
        for layers in range(12):
            for rank in range(pp):
                sizes = chunk_layers(layers, vpp, np.arange(vpp), rank == pp - 1 and pp > 1).tolist()
                assert sizes == chunk_sizes(layers, vpp, rank, pp)
                assert sum(sizes) == layers
                assert max(sizes) - min(sizes) <= 1
                if rank == 0:
                    assert sizes[0] == min(sizes)
                if rank == pp - 1 and pp > 1:
                    assert sizes[-1] == min(sizes)


def test_a_neighbour_has_one_prime_factor_elsewhere() -> None:
    """As many GPUs, and a factor of 2, 3, 5 ... moved from one degree to another."""
    rows = np.array([(4, 2, 2), (2, 4, 2), (1, 4, 4), (8, 1, 2), (4, 4, 1), (4, 2, 1), (1, 8, 2)]).T
    near = one_factor_away({"tp": 4, "pp": 2, "dp": 2}, dict(zip(("tp", "pp", "dp"), rows, strict=True)))
    assert near.tolist() == [False, True, False, True, True, False, False]


@pytest.mark.parametrize(("value", "largest"), [(1, 5), (12, 4), (36, 36), (97, 96), (10**9, 1000)])
def test_divisors_are_complete(value: int, largest: int) -> None:
    """Ascending, each once, up to the largest."""
    assert divisors(value, largest).tolist() == [d for d in range(1, min(value, largest) + 1) if value % d == 0]

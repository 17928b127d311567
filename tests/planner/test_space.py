"""The space holds every legal layout and no other."""

import numpy as np
import pytest

from cost_models.schedules import actions
from planner import rules
from planner.forbidden import violations
from planner.options import TABLE_FIELDS
from planner.space import (
    LAYOUT_FIELDS,
    MESH,
    SCHEDULES,
    chunk_layers,
    context_forms,
    divisors,
    expert_forms,
    known_values,
    layouts,
    meshes,
    one_factor_away,
    units,
)
from tests.oracles.brute_force import chunk_sizes
from tests.oracles.legal_layouts import legal_layouts
from tests.oracles.spaces import (
    EVERY_SCHEDULE,
    EXPERTS,
    KINDS,
    LEADING_DENSE,
    ODD_HEADS,
    SHAPES,
    SLICES,
    SPACES,
    Space,
)

SEVERAL = [
    *SPACES[::4],
    Space(12, 3, 12, 0.5, gpus_per_node=4),
    Space(6, 5, 4, 0.5, gpus_per_node=1, changes=ODD_HEADS),
    *KINDS[::2],
    *SLICES[::2],
    Space(12, 2, 6, 0.5, gpus_per_node=4, changes=LEADING_DENSE),
    Space(8, 2, 2, 0.5, gpus_per_node=4, seq_len="16k"),
    Space(8, 2, 2, 0.5, gpus_per_node=2, seq_len="16k", changes=(*EXPERTS, "kv_heads=8")),
    Space(12, 2, 12, 0.5, gpus_per_node=4, search=("groups",)),
    Space(8, 2, 2, 0.5, gpus_per_node=4, seq_len="16k", changes=(*EXPERTS, "kv_heads=8"), search=("groups",)),
]
MANY = [*SHAPES[::2], Space(6, 9, 13, 0.5, schedule=EVERY_SCHEDULE), Space(5, 8, 24, 0.5, schedule="flexible,zb-v")]
WITH_MANY = pytest.mark.parametrize("space", [*SEVERAL, *MANY], ids=lambda space: space.name)
EACH = pytest.mark.parametrize("space", SEVERAL, ids=lambda space: space.name)


@WITH_MANY
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
    """Every rule holds on every row."""
    request = space.request()
    columns = layouts(request, meshes(request))
    assert np.all(rules.legal({**known_values(request), **columns}))
    assert set(LAYOUT_FIELDS) <= set(columns)


@WITH_MANY
def test_every_layout_has_a_table(space: Space) -> None:
    """And breaks no rule, those of its schedule included."""
    request = space.request()
    columns, known = layouts(request, meshes(request)), known_values(request)
    for row in range(len(columns["pp"])):
        values = {**known, **{name: int(column[row]) for name, column in columns.items()}}
        assert not violations(values, flexible=rules.FLEXIBLE in request.schedules)
    for schedule, pp, vpp, m, group, slices in zip(*(columns[name].tolist() for name in TABLE_FIELDS), strict=True):
        table = actions(SCHEDULES[schedule], pp, vpp, m, slices=slices, group_size=group or None)
        assert (table.ranks, table.slices) == (pp, slices)


@pytest.mark.parametrize("pp", [1, 2, 4])
def test_chunks_share_the_layers_as_evenly_as_they_go(pp: int) -> None:
    """Sizes differ by one at most, add up, and are small where the embedding or the head is."""
    for vpp in range(1, 6):
        for layers in range(12):
            for rank in range(pp):
                has_head = rank == pp - 1 and pp > 1
                sizes = chunk_layers(layers, vpp, np.arange(vpp), has_head).tolist()
                assert sizes == chunk_sizes(layers, vpp, has_head)
                assert sum(sizes) == layers
                assert max(sizes) - min(sizes) <= 1
                if rank == 0:
                    assert sizes[0] == min(sizes)
                if rank == pp - 1 and pp > 1:
                    assert sizes[-1] == min(sizes)


def test_a_neighbour_has_one_prime_factor_elsewhere() -> None:
    """As many GPUs, and a factor of 2, 3, 5 ... moved from one degree to another."""
    rows = [(4, 1, 2, 2), (2, 1, 4, 2), (1, 1, 4, 4), (8, 1, 1, 2), (4, 1, 4, 1), (4, 1, 2, 1), (1, 1, 8, 2)]
    rows += [(2, 2, 2, 2), (1, 4, 2, 2), (4, 2, 1, 2), (2, 2, 4, 1)]
    near = one_factor_away({"tp": 4, "cp": 1, "pp": 2, "dp": 2}, dict(zip(MESH, np.array(rows).T, strict=True)))
    assert near.tolist() == [False, True, False, True, True, False, False, True, False, True, False]


def test_experts_are_dealt_to_every_number_of_ranks_that_divides_them() -> None:
    """Whole experts, and experts split as the layer is; a dense model knows none."""
    request = Space(12, 2, 6, 0.5, gpus_per_node=4, changes=LEADING_DENSE).request()
    assert expert_forms(request, 2, 12) == [(1, 1), (2, 1), (3, 1), (6, 1), (1, 2), (2, 2), (3, 2), (6, 2)]
    assert expert_forms(request, 1, 4) == [(1, 1), (2, 1)]
    assert expert_forms(Space(12, 2, 6, 0.5).request(), 2, 12) == [(1, 1)]


def test_context_is_split_in_four_ways() -> None:
    """Gathered, in a ring, by heads, and by heads inside a domain with rings between domains."""
    request = Space(16, 2, 1, 0.5, gpus_per_node=4, seq_len="16k", changes=("kv_heads=8",)).request()
    assert context_forms(request, 1, 1) == [(1, 0)]
    assert context_forms(request, 1, 4) == [(1, 0), (1, 1), (4, 0)]
    assert context_forms(request, 1, 8) == [(1, 0), (1, 1), (8, 0), (4, 1)]
    assert context_forms(request, 2, 8) == [(1, 0), (1, 1), (2, 1)]
    assert context_forms(request, 4, 4) == [(1, 0), (1, 1)]


def test_sequences_of_any_length_are_split() -> None:
    """Over as many ranks as get a head and a tail of it each."""
    for seq_len, most in (("2", 1), ("4", 2), ("1k", 4), ("16k", 4)):
        assert meshes(Space(4, 2, 4, 0.5, seq_len=seq_len).request())["cp"].max() == most


def test_stages_are_dealt_whole_groups_of_layers() -> None:
    """A pipeline has at most as many ranks as the pattern repeats; what leads and trails goes with the ends."""
    request = Space(6, 7, 6, 0.5, changes=("sliding_window=256", "full_attention_step=2")).request()
    assert units(request.model) == known_values(request)["layers"] == 3
    assert meshes(request)["pp"].max() == 3


@pytest.mark.parametrize(("value", "largest"), [(1, 5), (12, 4), (36, 36), (97, 96), (10**9, 1000)])
def test_divisors_are_complete(value: int, largest: int) -> None:
    """Ascending, each once, up to the largest."""
    assert divisors(value, largest).tolist() == [d for d in range(1, min(value, largest) + 1) if value % d == 0]

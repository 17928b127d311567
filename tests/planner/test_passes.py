"""Ends of hops and layers whose backward is split, by stage and by chunk."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from cost_models import schedules
from cost_models.schedules.table import Kind
from cost_models.specs.recipe import FrameworkRecipe
from planner.options import chunk_rows, stage_rows
from planner.passes import PASSES, ends_of_hops, of_passes
from planner.space import SCHEDULES

Columns = Mapping[str, NDArray[Any]]
RECIPE = FrameworkRecipe(name="any")


@pytest.mark.parametrize(
    ("schedule", "pp", "vpp", "expected"),
    [
        ("1f1b", 1, 1, [[0]]),
        ("1f1b", 3, 1, [[1], [2], [1]]),
        ("interleaved", 2, 3, [[1, 2, 2], [2, 2, 1]]),
        ("breadth-first", 1, 3, [[0, 0, 0]]),
        ("zb-v", 3, 2, [[1, 1], [2, 2], [1, 1]]),
        ("v-min", 1, 2, [[0, 0]]),
    ],
)
def test_ends_of_hops(schedule: str, pp: int, vpp: int, expected: list[list[int]]) -> None:
    """One for each neighbour on another rank: ends of the model have one, the turn of a V hands on within its rank."""
    assert ends_of_hops(schedule, pp, vpp).tolist() == expected


def rows_of(schedule: str, pp: int, vpp: int, layers: tuple[int, ...]) -> tuple[Columns, Columns]:
    """One layout, and a row for each of its stages."""
    sizes = {"pp": pp, "vpp": vpp, "num_microbatches": 4 * pp, "group_size": 0, "slices": 1, "spread": 0}
    layouts = {name: np.array([size]) for name, size in {**sizes, "schedule": SCHEDULES.index(schedule)}.items()}
    position = np.arange(pp)
    return layouts, stage_rows(
        layouts, {"layout": 0 * position, "position": position, "layers": np.array(layers)}, RECIPE
    )


@pytest.mark.parametrize("schedule", [name for name in SCHEDULES if name in (*schedules.SPLIT, "interleaved", "1f1b")])
def test_chunks_add_up_to_their_stage(schedule: str) -> None:
    """Of every count, where layers leave some chunks wider; the first chunk of the model is told apart."""
    vpp = {"1f1b": 1, "zb-h1": 1, "zb-h2": 1}.get(schedule, 2)
    layouts, rows = rows_of(schedule, 3, vpp, (4, 5, 3))
    chunks = chunk_rows(
        {name: np.repeat(column, vpp) for name, column in rows.items()} | {"recompute_per_chunk": np.zeros(3 * vpp)},
        np.tile(np.arange(vpp), 3),
    )
    for name in PASSES:
        whole, apart = of_passes(name, layouts, rows), of_passes(name, layouts, chunks).reshape(3, vpp)
        assert whole.tolist() == pytest.approx(apart.sum(axis=1).tolist())
    split, first = (of_passes(name, layouts, chunks).reshape(3, vpp) for name in PASSES[1:])
    if schedule in schedules.SPLIT:
        of_all = (split + first).sum(axis=1)
        assert np.all(of_all < [4, 5, 3]) if schedule == "dualpipe-v" else of_all.tolist() == pytest.approx([4, 5, 3])
        assert np.argwhere(first).tolist() == [[0, 0]]
        assert split[0, 0] == 0
    else:
        assert not split.any()
        assert not first.any()


@pytest.mark.parametrize("micro_batches", [6, 12])
def test_whole_backwards_among_split_ones_are_not_split(micro_batches: int) -> None:
    """DualPipe runs backwards whole once the pipeline is full: as many are split of any number of micro-batches."""
    layouts, rows = rows_of("dualpipe-v", 3, 2, (4, 4, 4))
    layouts = {**layouts, "num_microbatches": np.array([micro_batches])}
    table = schedules.actions("dualpipe-v", 3, 2, micro_batches)
    for rank in range(3):
        later = [action.chunk for action in table.rank_actions(rank) if action.kind is Kind.WEIGHT_GRAD]
        others = sum(1 for chunk in later if (rank, chunk) != (0, 0))
        split, first = (of_passes(name, layouts, rows)[rank] for name in PASSES[1:])
        assert micro_batches * split == pytest.approx(2 * others)
        assert micro_batches * first == pytest.approx(2 * (len(later) - others))

"""Options of a stage: what is alive, which of them fit, which of them are kept."""

from dataclasses import fields
from itertools import product

import numpy as np
import pytest

from cost_models import schedules
from cost_models.schedules import V_SHAPED, interleaved
from cost_models.schedules.live import split_history
from cost_models.specs.recipe import FrameworkRecipe
from planner.fitting import FULL, MARGIN, with_recompute
from planner.layout_costs import LayoutCosts
from planner.live import ALL_ALIVE, SETTLED, Live, live_counts
from planner.options import COLUMNS, positions, stage_options, stage_rows
from planner.predict import CostModel
from planner.space import chunk_layers, layouts, meshes
from tests.oracles.spaces import Space

SHAPES = [
    *(("1f1b", p, 1, m) for p in (1, 2, 3, 5, 8) for m in (1, 2, 7, 16, 40, 99)),
    *(("gpipe", p, 1, m) for p in (1, 4) for m in (1, 6, 31)),
    *(("interleaved", p, v, k * p) for p in (2, 3, 4, 7) for v in (2, 3, 5) for k in (1, 2, 3, 4, 7, 12)),
    *(("breadth-first", p, v, m) for p in (2, 4) for v in (2, 3) for m in (1, 6, 31)),
]
GROUPS = [
    (p, v, m, group)
    for p, v in ((2, 3), (3, 2), (4, 4))
    for m in (2, 7, 16, 33, 64)
    for group in (0, p + 1, 2 * p, 2 * p + 3, m)
    if interleaved.legal(p, v, m, group_size=group or None)
]
RECIPE = FrameworkRecipe(name="any")
SPLIT = [
    *((name, p, 1, m) for name in ("zb-h1", "zb-h2") for p in (2, 3, 5, 8) for m in (1, 4, 11, 26, 40)),
    *((name, p, 2, m) for name in V_SHAPED for p in (2, 3, 4, 7) for m in (1, 4, 8, 15, 30)),
]


@pytest.mark.parametrize(("name", "p", "v", "m"), SHAPES)
def test_live_counts_are_those_of_the_whole_table(name: str, p: int, v: int, m: int) -> None:
    """Settling early changes nothing: totals, wide chunks, first and last chunk agree with all m micro-batches."""
    live, vectors = live_counts(name, p, v, m), schedules.live_chunks(name, p, v, m)
    assert m <= SETTLED * p or name in ALL_ALIVE or schedules.actions(name, p, v, m).micro_batches > SETTLED * p
    for rank in range(p):
        assert live.total[rank] == vectors[rank].sum(axis=1).max()
        assert live.first[rank] == vectors[rank][:, 0].max()
        assert live.last[rank] == vectors[rank][:, -1].max()
        for extra in range(v):
            sizes = chunk_layers(extra, v, np.arange(v), rank == p - 1 and p > 1)
            assert live.wide[rank, extra] == (vectors[rank] * sizes).sum(axis=1).max()


@pytest.mark.parametrize(("name", "p", "v", "m"), SHAPES)
def test_live_layers_are_never_too_few_and_exact_for_equal_chunks(name: str, p: int, v: int, m: int) -> None:
    """Total times narrow plus wide is at least max_k sum_c live * layers, and equal to it without a remainder."""
    live, vectors = live_counts(name, p, v, m), schedules.live_chunks(name, p, v, m)
    for rank in range(p):
        for layers in range(1, 4 * v + 1):
            base, extra = divmod(layers, v)
            sizes = chunk_layers(layers, v, np.arange(v), rank == p - 1 and p > 1)
            assert sizes.sum() == layers
            exact = (vectors[rank] * sizes).sum(axis=1).max()
            counted = live.total[rank] * base + live.wide[rank, extra]
            assert counted >= exact
            assert extra or counted == exact


@pytest.mark.parametrize(
    ("name", "p", "v", "m", "slices"),
    [
        *(("slimpipe", p, v, m, k * p) for p in (2, 4) for v in (1, 2, 5) for m in (1, 2, 5) for k in (1, 4)),
        *(("seq1f1b", p, 1, m, slices) for p in (2, 5) for m in (1, 3, 8) for slices in (2, 8)),
        *(("terapipe", p, 1, m, slices) for p in (2, 3) for m in (1, 4) for slices in (2, 8)),
        *(("breadth-first", p, v, m, 1) for p in (2, 3) for v in (1, 3) for m in (1, 4, 9)),
    ],
)
def test_live_counts_of_slices_are_those_of_the_whole_table(name: str, p: int, v: int, m: int, slices: int) -> None:
    """Settling early, and what is known without a table, change nothing either; counts are slices of micro-batches."""
    live, vectors = live_counts(name, p, v, m, 0, slices), schedules.live_chunks(name, p, v, m, slices=slices)
    for rank in range(p):
        assert live.total[rank] == vectors[rank].sum(axis=1).max()
        assert live.first[rank] == vectors[rank][:, 0].max()
        assert live.last[rank] == vectors[rank][:, -1].max()
        for extra in range(v):
            sizes = chunk_layers(extra, v, np.arange(v), rank == p - 1 and p > 1)
            assert live.wide[rank, extra] == (vectors[rank] * sizes).sum(axis=1).max()


@pytest.mark.parametrize(("p", "v", "m", "group"), GROUPS)
def test_live_counts_of_groups_are_those_of_the_whole_table(p: int, v: int, m: int, group: int) -> None:
    """Leaving out whole groups changes nothing, whatever is left over."""
    table = schedules.actions("interleaved", p, v, m, group_size=group or None)
    _agree(live_counts("interleaved", p, v, m, group), Live.of(table, p - 1))


@pytest.mark.parametrize(("name", "p", "v", "m"), SPLIT)
def test_live_counts_of_split_backwards_are_those_of_the_whole_table(name: str, p: int, v: int, m: int) -> None:
    """And the layers that they stand for are never too few, whatever is recomputed."""
    if not schedules.schedule(name).legal(p, v, m):
        return
    table, head = schedules.actions(name, p, v, m), 0 if name in V_SHAPED else p - 1
    live = live_counts(name, p, v, m)
    _agree(live, Live.of(table, head))
    for rank, layers, again in product(range(p), range(v, 3 * v), range(3)):
        sizes = chunk_layers(layers, v, np.arange(v), rank == head)
        base, extra = divmod(layers, v)
        kept, recomputed = sizes - np.minimum(again, sizes), np.minimum(again, sizes)
        row = _row(live, rank, base, extra, again)
        busy, waiting = split_history(table, rank)
        for whole, some in ((10, 2), (10, 9)):  # bytes of a layer, and of one that is recomputed
            exact = busy @ (kept * whole + recomputed * some) + waiting @ (sizes * whole)
            counted = (row["live_layers"] - row["live_recompute_layers"]) * whole + row["live_recompute_layers"] * some
            assert counted >= exact.max()


def _agree(live: Live, whole: Live) -> None:
    for field in fields(Live):
        assert np.array_equal(getattr(live, field.name), getattr(whole, field.name)), field.name


def _row(live: Live, rank: int, base: int, extra: int, again: int) -> dict[str, int]:
    """The layer counts of a rank's row where `again` layers of every chunk are recomputed."""
    counts = {name: getattr(live, field)[rank] for field, name in COLUMNS.items() if getattr(live, field).ndim == 1}
    counts |= {name: getattr(live, field)[rank, extra] for field, name in COLUMNS.items() if field.endswith("wide")}
    counts |= {"layout": 0, "chunk_layers": base, "wide_chunks": extra, "vpp": live.wide.shape[1]}
    counts["live_layers"] = counts["live_total"] * base + counts["live_wide"]
    rows = with_recompute({name: np.array([value]) for name, value in counts.items()}, FULL, np.array([again]))
    return {name: int(column[0]) for name, column in rows.items()}


def all_options(space: Space) -> tuple[CostModel, LayoutCosts, dict[str, np.ndarray]]:
    """The options of every layout, position and number of layers."""
    request = space.request()
    model = CostModel(request)
    costs = LayoutCosts.of(model, layouts(request, meshes(request)))
    shape = (len(costs), int(costs.layouts["pp"].max()))
    exists = np.arange(shape[1]) < costs.layouts["pp"][:, None]
    upper = np.where(exists, request.model.layers, -1)
    least = np.maximum(costs.layouts["vpp"][:, None] - 1, 1)
    return model, costs, stage_options(model, costs, positions(np.where(exists, least, 0), upper))


@pytest.mark.parametrize("memory", [0.05, 0.2, 0.5])
def test_options_fit_and_come_in_order(memory: float) -> None:
    """Every option is within capacity with the margin; rows are sorted by layout, position and layers."""
    model, costs, options = all_options(Space(4, 5, 4, memory))
    device = model.stages(costs, options, "device")["device_bytes"]
    assert np.array_equal(device, options["device_bytes"])
    assert np.all(device <= model.request.capacity_bytes / (1 + MARGIN))
    keys = np.stack([options[name] for name in ("layout", "position", "layers")])
    assert np.array_equal(np.lexsort(keys[::-1]), np.arange(keys.shape[1]))


def test_more_memory_keeps_or_betters_every_option() -> None:
    """For each layout, position and layers, some option of the roomier job is as fast in every second."""
    names = ("first_chunk_forward_s", "plain_chunk_input_grad_s", "last_chunk_input_grad_s", "first_s", "global_s")
    _, _, tight = all_options(Space(2, 6, 4, 0.1, schedule="interleaved"))
    _, _, roomy = all_options(Space(2, 6, 4, 0.6, schedule="interleaved"))
    for row in range(len(tight["layout"])):
        same = np.all([roomy[key] == tight[key][row] for key in ("layout", "position", "layers")], axis=0)
        as_fast = np.all([roomy[name] <= tight[name][row] * (1 + 1e-12) for name in names], axis=0)
        assert np.any(same & as_fast)


def test_the_smallest_recompute_that_fits_is_taken() -> None:
    """One fully recomputed layer a chunk less than an option has would not fit."""
    model, costs, options = all_options(Space(2, 6, 4, 0.08))
    rows = np.flatnonzero((options["recompute_per_chunk"] > 1) & (options["recompute"] == FULL))
    assert len(rows)
    some = {name: column[rows] for name, column in options.items()}
    less = {**some, "recompute_per_chunk": some["recompute_per_chunk"] - 1}
    narrow = np.minimum(less["recompute_per_chunk"], some["chunk_layers"])
    wide = np.minimum(less["recompute_per_chunk"], some["chunk_layers"] + 1)
    less["recompute_layers"] = narrow * (some["vpp"] - some["wide_chunks"]) + wide * some["wide_chunks"]
    less["live_recompute_layers"] = narrow * some["live_total"] + (wide - narrow) * some["live_wide"]
    assert np.all(model.stages(costs, less, "device")["device_bytes"] > model.request.capacity_bytes / (1 + MARGIN))


def test_positions_list_every_number_of_layers() -> None:
    """A row for each number from lower to upper, and none where the window is empty."""
    rows = positions(np.array([[1, 0], [2, 3]]), np.array([[2, -1], [2, 4]]))
    assert [*zip(*(rows[name].tolist() for name in ("layout", "position", "layers")), strict=True)] == [
        (0, 0, 1),
        (0, 0, 2),
        (1, 0, 2),
        (1, 1, 3),
        (1, 1, 4),
    ]


def test_a_stage_knows_what_it_holds() -> None:
    """Rank 0 of two holds the embedding, rank 1 the head; live counts are those of interleaving in two chunks."""
    columns = {name: np.array([value]) for name, value in {"pp": 2, "vpp": 2, "num_microbatches": 4}.items()}
    columns |= {
        name: np.array([value]) for name, value in {"schedule": 1, "slices": 1, "group_size": 0, "spread": 0}.items()
    }
    rows = {"layout": np.zeros(2, dtype=np.int64), "position": np.arange(2), "layers": np.array([3, 4])}
    stage = stage_rows(columns, rows, RECIPE)
    assert stage["has_embedding"].tolist() == [1, 0]
    assert stage["has_head"].tolist() == [0, 1]
    assert stage["live_total"].tolist() == [5, 3]
    assert stage["chunk_layers"].tolist() == [1, 2]
    assert stage["wide_chunks"].tolist() == [1, 0]

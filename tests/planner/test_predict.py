"""Rows to seconds and bytes: gathered columns, sums over chunks, no negative seconds."""

import numpy as np
import pytest

from cost_models.specs.parameters import padded_vocab
from cost_models.vocabulary import COMMUNICATIONS
from planner import options as options_module
from planner.layout_costs import LayoutCosts
from planner.options import chunk_rows, positions, stage_options
from planner.pipeline import Pipeline
from planner.predict import MICRO_BATCH_OUTPUTS, OUTPUTS, CostModel, unit_seconds
from planner.space import RECOMPUTE_SETS, layouts, meshes, take
from tests.oracles.spaces import EXPERTS, LATENT, LEADING_DENSE, NO_OVERLAP, SLOW_NETWORK, UNFUSED, Space

SPACES = [
    Space(4, 7, 4, 0.4, schedule="interleaved"),
    Space(4, 7, 4, 1.0, schedule="interleaved", gpus_per_node=1, changes=SLOW_NETWORK + NO_OVERLAP + UNFUSED),
    Space(4, 7, 4, 0.5, gpus_per_node=4, schedule="interleaved", changes=LATENT + LEADING_DENSE),
    Space(2, 6, 2, 0.5, seq_len="16k", changes=SLOW_NETWORK + EXPERTS),
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
    parts = ("compute_s", *(f"{name}_s" for name in COMMUNICATIONS), "recompute_s", "exchange_s")
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
    all_nodes = unit_seconds(model.micro_batch(costs.layouts))["layer"]
    relief = model.relief(costs.layouts["world"])
    assert np.allclose(costs.unit_s["layer"], all_nodes * relief, rtol=1e-12)
    assert len(few) == 2


def test_idle_nodes_hold_nobody_up() -> None:
    """A layout on all nodes takes what the operators are bound to, one on fewer nodes less, by the pace of these."""
    model = CostModel(Space(4, 4, 4, 0.4).request())
    profile = model.request.profile
    on_one_node = profile.sustained_on(2) / profile.sustained_on(1)
    assert on_one_node < 1
    assert model.relief(np.array([4, 3, 2, 1])).tolist() == [1.0, 1.0, on_one_node, on_one_node]


def test_communicators_count_groups_of_several_ranks() -> None:
    """One for each degree above one, and one for the world."""
    request = Space(4, 4, 4, 0.4).request()
    columns = layouts(request, meshes(request))
    costs = LayoutCosts.of(CostModel(request), columns)
    for row in range(len(costs)):
        degrees = [int(columns[name][row]) for name in ("tp", "cp", "ep", "pp", "dp_shard", "dp_replicate", "world")]
        assert costs.communicators[row] == sum(degree > 1 for degree in degrees)


@pytest.mark.parametrize(
    ("changes", "modules"),
    [
        ((), {"norm", "activation", "mlp", "full"}),
        (UNFUSED, {"norm", "activation", "mlp", "core_attention", "full"}),
        (EXPERTS, {"norm", "activation", "moe", "full"}),
        (LATENT, {"norm", "activation", "mlp", "mla_up_proj", "full"}),
        (LEADING_DENSE, {"norm", "activation", "mlp", "moe", "shared_experts", "full"}),
    ],
)
def test_a_model_recomputes_what_it_has(changes: tuple[str, ...], modules: set[str]) -> None:
    """Every set in use has a module of the model in it, no two come to the same, and none that differs is left out."""
    model = CostModel(Space(2, 3, 2, 0.5, changes=changes).request())
    assert model.recompute_modules == modules
    used = [frozenset(RECOMPUTE_SETS[index]) & modules for index in model.recompute_sets]
    assert len(set(used)) == len(used)
    assert set(used) == {frozenset(names) & modules for names in RECOMPUTE_SETS}
    assert model.recompute_sets[0] == 0


@pytest.mark.parametrize(
    ("vocab", "multiple", "tp", "padded"), [(50257, 128, 1, 50304), (50257, 128, 8, 51200), (128256, 1, 2, 128256)]
)
def test_the_vocabulary_is_padded_to_a_multiple(vocab: int, multiple: int, tp: int, padded: int) -> None:
    """Of `multiple` times tp, as Megatron does."""
    assert padded_vocab(vocab, multiple, tp) == padded


def test_stages_that_are_numbered_cost_what_they_cost_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Costing a stage once for all ranks and recompute counts gives what costing every row by itself gives."""
    monkeypatch.setattr(options_module, "ROWS_PER_STAGE", 0.0)
    request = SPACES[0].request()
    model = CostModel(request)
    costs = LayoutCosts.of(model, layouts(request, meshes(request)))
    pp = costs.layouts["pp"][:, None]
    exists = np.arange(int(pp.max())) < pp
    options = stage_options(model, costs, positions(np.where(exists, 3, 0), np.where(exists, 6, -1)))
    alone = {name: column for name, column in options.items() if name != "stage"}
    assert 1 < len(np.unique(options["stage"])) < len(options["stage"])
    for group in OUTPUTS:
        numbered = model.stages(costs, options, group)
        for name, column in model.stages(costs, alone, group).items():
            np.testing.assert_array_equal(numbered[name], column, err_msg=f"{group} {name}")


def test_chunks_gathered_by_kind_are_those_that_are_costed() -> None:
    """The seconds of each chunk of an option, read off its kinds of chunk, are those of the chunk by itself."""
    request = SPACES[0].request()
    model = CostModel(request)
    costs = LayoutCosts.of(model, layouts(request, meshes(request)))
    pp = costs.layouts["pp"][:, None]
    exists = np.arange(int(pp.max())) < pp
    options = stage_options(model, costs, positions(np.where(exists, 3, 0), np.where(exists, 6, -1)))
    several = np.flatnonzero(costs.layouts["vpp"] > 1)
    assert len(several)
    for index in several.tolist():
        mine = take(options, options["layout"] == index)
        vpp, count = int(costs.layouts["vpp"][index]), len(mine["layout"])
        gathered = Pipeline(model, costs, index, mine).chunk_s
        rows = chunk_rows(
            {name: np.repeat(column, vpp) for name, column in mine.items()}, np.tile(np.arange(vpp), count)
        )
        for name, column in model.stages(costs, rows, "chunk").items():
            np.testing.assert_array_equal(gathered[name], column.reshape(-1, vpp))

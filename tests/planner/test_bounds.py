"""Bounds of whole layouts and meshes: never above what they bound."""

import numpy as np
import pytest

from cost_models.schedules import V_SHAPED
from planner.bounds import layout_bounds, least_memory, mesh_bounds
from planner.fitting import MARGIN
from planner.layout_costs import LayoutCosts
from planner.options import positions, stage_options
from planner.predict import CostModel
from planner.space import SCHEDULES, layouts, meshes, units
from planner.windows import window
from tests.oracles.spaces import (
    EVERY_SCHEDULE,
    EVERY_SECOND_HAS_EXPERTS,
    EXPERTS,
    LATENT,
    NO_OVERLAP,
    ODD_HEADS,
    SLOW_NETWORK,
    UNFUSED,
    WIDE_ENDS,
    WINDOWS,
    Space,
)

SPACES = [
    Space(4, 5, 4, 0.3),
    Space(6, 4, 6, 0.2, gpus_per_node=1, changes=SLOW_NETWORK + NO_OVERLAP),
    Space(4, 4, 4, 0.1, seq_len="2k", changes=(*UNFUSED, "vocab=50000", "tie_embeddings=true")),
    Space(4, 2, 4, 0.1, changes=("hidden=64", "ffn=64", "vocab=100000", *NO_OVERLAP)),
    Space(4, 2, 4, 0.1, gpus_per_node=4, changes=EXPERTS),
    Space(4, 7, 4, 0.2, changes=LATENT + EVERY_SECOND_HAS_EXPERTS + NO_OVERLAP),
    Space(4, 3, 2, 0.1, seq_len="16k", changes=WINDOWS + SLOW_NETWORK),
    Space(4, 7, 8, 0.1, schedule=EVERY_SCHEDULE, changes=ODD_HEADS + WIDE_ENDS + NO_OVERLAP),
]
EACH = pytest.mark.parametrize("space", SPACES, ids=lambda space: space.name)


def costed(space: Space) -> tuple[CostModel, LayoutCosts]:
    """Every layout of a space."""
    request = space.request()
    model = CostModel(request)
    return model, LayoutCosts.of(model, layouts(request, meshes(request)))


@EACH
def test_a_mesh_is_bounded_below_its_layouts(space: Space) -> None:
    """The mesh bound holds for the bound of each of its layouts, so that the order of meshes prunes nothing wrongly."""
    model, costs = costed(space)
    step, _ = layout_bounds(model, costs)
    assert np.all(mesh_bounds(model, costs.layouts) <= step * (1 + 1e-9))


@EACH
def test_the_global_bound_holds_for_any_mixture_of_zero_modes(space: Space) -> None:
    """Whatever modes the stages take, the largest global part is not below the bound: random splits and modes."""
    model, costs = costed(space)
    _, everything = layout_bounds(model, costs)
    rng = np.random.default_rng(3)
    pp, total = costs.layouts["pp"], units(model.request.model)
    layout = np.repeat(np.arange(len(costs)), pp)
    position = np.arange(len(layout)) - np.repeat(np.cumsum(pp) - pp, pp)
    for _ in range(30):
        share = rng.random(len(layout)) ** 4 + 1e-3
        of_layout = np.zeros(len(costs))
        np.add.at(of_layout, layout, share)
        rows = {
            "layout": layout,
            "zero": rng.integers(0, 5, len(layout)),
            "recompute": np.zeros_like(layout),
            "layers": total * share / of_layout[layout],
            "has_embedding": (position == 0).astype(np.int64),
            "has_head": (position == pp[layout] - 1).astype(np.int64),
        }
        largest = np.zeros(len(costs))
        np.maximum.at(largest, layout, model.stages(costs, rows, "global")["global_s"])
        assert np.all(everything <= largest * (1 + 1e-9))


@pytest.mark.parametrize("space", [*SPACES[:3], *SPACES[4:]], ids=lambda space: space.name)
def test_what_cannot_fit_has_a_stage_without_options(space: Space) -> None:
    """A layout whose least memory is over capacity has no assignment of options at all."""
    model, costs = costed(space)
    over = least_memory(model, costs)["device_bytes"] * (1 + MARGIN) > model.request.capacity_bytes
    assert over.any()
    costs = costs.take(over)
    lower, upper, _ = window(model, costs, np.full(len(costs), np.inf))
    options = stage_options(model, costs, positions(lower, upper))
    pp, total = costs.layouts["pp"], units(model.request.model)
    for index in range(len(costs)):
        mine = options["layout"] == index
        most = [
            options["layers"][mine & (options["position"] == rank)].max(initial=-total) for rank in range(pp[index])
        ]
        assert sum(most) < total


@EACH
def test_windows_without_a_budget_hold_every_split(space: Space) -> None:
    """Each stage may hold any number of layers that leaves every chunk of the others one or an end of the model."""
    model, costs = costed(space)
    lower, upper, possible = window(model, costs, np.full(len(costs), np.inf))
    assert possible.all()
    for index in range(len(costs)):
        pp, vpp = int(costs.layouts["pp"][index]), int(costs.layouts["vpp"][index])
        head = 0 if SCHEDULES[costs.layouts["schedule"][index]] in V_SHAPED else pp - 1
        ends = [(rank == 0) + (rank == head) if vpp > 1 else 0 for rank in range(pp)]
        least = [vpp - end for end in ends]
        assert lower[index, :pp].tolist() == (least if pp > 1 else [units(model.request.model)])
        for rank in range(pp):
            assert upper[index, rank] == units(model.request.model) - sum(least) + least[rank]
        assert np.all(upper[index, pp:] < lower[index, pp:])


def test_a_batch_of_a_thousand_million_sequences_is_bounded_at_once() -> None:
    """Only divisors are tried as micro-batch sizes."""
    request = Space(2, 3, 4, 0.3).request()
    request = request.replaced(workload=request.workload.replaced(global_batch=10**9))
    assert np.all(mesh_bounds(CostModel(request), meshes(request)) > 0)

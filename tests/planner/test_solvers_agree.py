"""The dynamic program and the mixed-integer program find the same optimum wherever both apply."""

from dataclasses import replace

import pytest

from planner.bounds import layout_bounds
from planner.candidates import costed
from planner.incumbent import Search
from planner.layout_costs import LayoutCosts
from planner.predict import CostModel
from planner.space import layouts, meshes
from solver.assignment import chain_assignment
from solver.dynamic_program import minimum_cost
from solver.milp import minimum_path_cost
from tests.oracles.spaces import KINDS, SHAPES, SLICES, SPACES, Space

SOME = [replace(space, memory=1.0) for space in (*SPACES[3::6], *KINDS[1::6], *SHAPES[::3], *SLICES[2::6])]


@pytest.mark.slow
@pytest.mark.parametrize("space", SOME, ids=lambda space: space.name)
def test_both_programs_find_the_same_optimum(space: Space) -> None:
    """Of every third pipeline of several stages, under the bound of its schedule."""
    search = Search(CostModel(space.request()))
    costs = LayoutCosts.of(search.model, layouts(search.request, meshes(search.request)))
    costs = costs.take(costs.layouts["pp"] > 1)
    step, everything = layout_bounds(search.model, costs)
    costs = costs.with_columns(bound_s=step, global_bound_s=everything)
    pipelines = list(costed(search, costs))[::3][:12]
    for pipeline in pipelines:
        program, mixed = minimum_cost(pipeline.chain), minimum_path_cost(chain_assignment(pipeline.chain))
        assert program.status == mixed.status
        if program.feasible:
            assert mixed.objective == pytest.approx(program.objective, rel=1e-6)
    assert pipelines

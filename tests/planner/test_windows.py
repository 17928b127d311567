"""Windows of layers: what a budget and memory leave to each position, and nothing that could be used is lost."""

import numpy as np
import pytest

from planner.bounds import layout_bounds
from planner.options import positions, stage_options
from planner.pipeline import Pipeline
from planner.predict import CostModel
from planner.space import take
from planner.windows import narrowed, window
from tests.oracles.spaces import EXPERTS, SLOW_NETWORK, Space
from tests.planner.test_bounds import EACH, costed

# Budgets over that of the fastest layouts.
SLACKS = (1.005, 1.1, 2.0)


def usable(pipeline: Pipeline) -> set[tuple[int, ...]]:
    """The options, by position and choice, that some assignment of all layers takes."""
    if not len(pipeline.options["layers"]):
        return set()
    rows = [row for moves in pipeline.chain.moves for row in moves.rows.tolist()]
    names = ("position", "layers", "zero", "recompute", "recompute_per_chunk")
    return {tuple(int(pipeline.options[name][row]) for name in names) for row in rows}


@EACH
@pytest.mark.parametrize("slack", SLACKS)
def test_narrowed_windows_lose_no_option_of_any_assignment(space: Space, slack: float) -> None:
    """Of every layout, the options that assignments within the budget take are those of the full windows."""
    model, costs = costed(space)
    step_s, _ = layout_bounds(model, costs)
    budget_s = np.full(len(costs), slack * float(np.median(step_s)))
    lower, upper, _ = window(model, costs, budget_s)
    less, more, asked = narrowed(model, costs, lower.copy(), upper.copy(), budget_s)
    assert asked >= np.sum(lower <= upper)
    assert np.all((less >= lower) | (more < less))
    assert np.all(more <= upper)
    options = [stage_options(model, costs, positions(*ends), budget_s) for ends in ((lower, upper), (less, more))]
    for index in range(len(costs)):
        full, narrow = (
            Pipeline(model, costs, index, take(each, np.flatnonzero(each["layout"] == index))) for each in options
        )
        assert usable(narrow) == usable(full)


def test_a_layout_that_memory_rules_out_has_no_window_left() -> None:
    """Where early positions keep so much alive that they cannot hold their share, no option is costed."""
    model, costs = costed(Space(4, 5, 4, 0.3))
    step_s, _ = layout_bounds(model, costs)
    budget_s = np.full(len(costs), 1.02 * float(step_s.min()))
    lower, upper, possible = window(model, costs, budget_s)
    less, more, _ = narrowed(model, costs, lower.copy(), upper.copy(), budget_s)
    dead = possible & np.all(more < less, axis=1)
    assert dead.any()
    full = stage_options(model, costs, positions(lower, upper), budget_s)
    for index in np.flatnonzero(dead):
        mine = take(full, np.flatnonzero(full["layout"] == index))
        assert not usable(Pipeline(model, costs, int(index), mine))


@pytest.mark.parametrize("changes", [SLOW_NETWORK, EXPERTS], ids=["slow", "experts"])
def test_without_a_budget_or_with_the_host_nothing_is_narrowed(changes: tuple[str, ...]) -> None:
    """Options on the host are tried where nothing fits without: they need not shrink with the layers."""
    model, costs = costed(Space(4, 5, 4, 0.3, changes=changes))
    endless, some = np.full(len(costs), np.inf), np.full(len(costs), 10.0)
    ends = window(model, costs, endless)[:2]
    with_host = CostModel(model.request, offload=True)
    restricted = CostModel(model.request.replaced(target="megatron"))
    for each, budget_s in ((model, endless), (with_host, some), (restricted, some)):
        less, more, asked = narrowed(each, costs, *ends, budget_s)
        assert (less is ends[0], more is ends[1], asked) == (True, True, 0)
